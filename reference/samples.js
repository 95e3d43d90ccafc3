/** @import { SampleRequest } from './description.ts' */

/** @param {string} text */
const shellString = (text) => `'${text.replaceAll("'", String.raw`'\''`)}'`

/**
 * A string literal in JavaScript and in Python.
 *
 * @param {string} text
 */
const literal = (text) => `'${text.replace(/['\\]/g, '\\$&').replaceAll('\n', String.raw`\n`)}'`

/**
 * One line for each header except Authorization.
 *
 * @param {SampleRequest} request
 * @param {(name: string, value: string) => string} line
 */
const headerLines = ({ headers }, line) =>
  Object.entries(headers)
    .map(([name, value]) => `${line(name, value)}\n`)
    .join('')

/**
 * Whether the response may be a 304, without a body.
 *
 * @param {SampleRequest} request
 */
const mayBeUnchanged = ({ method, headers }) => method === 'GET' && 'If-None-Match' in headers

/** @param {SampleRequest} request */
function curl({ method, url, headers, body }) {
  const options = [
    '--max-time 10',
    ...(method === 'GET' ? [] : [`--request ${method}`]),
    '--header "Authorization: Bearer $INVENTORY_KEY"',
    ...Object.entries(headers).map(([name, value]) => `--header ${shellString(`${name}: ${value}`)}`),
    ...(body === undefined ? ['--compressed'] : [`--data-raw ${shellString(body)}`]),
  ]
  return `curl ${shellString(url)} \\\n  ${options.join(' \\\n  ')}`
}

/** @param {SampleRequest} request */
function javascript(request) {
  const { method, url, body } = request
  const unchanged = `if (response.status === 304) {
  console.log('The list has not changed.')
  process.exit()
}
`
  return `const response = await fetch(${literal(url)}, {
  method: '${method}',
  headers: {
    Authorization: \`Bearer \${process.env.INVENTORY_KEY}\`,
${headerLines(request, (name, value) => `    ${literal(name)}: ${literal(value)},`)}  },
${body === undefined ? '' : `  body: ${literal(body)},\n`}  signal: AbortSignal.timeout(10_000),
})
const text = await response.text()
${mayBeUnchanged(request) ? unchanged : ''}if (!response.ok) throw new Error(\`\${response.status} \${text}\`)

// JSON.parse rounds integers above 2^53: read petId as a string, then as a BigInt.
const exact = text.replace(/(?<=[{,\\s])"petId"\\s*:\\s*(-?\\d+)/g, '"petId":"$1"')
console.log(JSON.parse(exact, (name, value) => (name === 'petId' ? BigInt(value) : value)))`
}

/** @param {SampleRequest} request */
function python(request) {
  const { method, url, body } = request
  const unchanged = `    if error.code == 304:
        print('The list has not changed.')
        sys.exit()
`
  return `import json
import os
import sys
import urllib.error
import urllib.request

request = urllib.request.Request(
    ${literal(url)},
    method='${method}',
    headers={
        'Authorization': f'Bearer {os.environ["INVENTORY_KEY"]}',
${headerLines(request, (name, value) => `        ${literal(name)}: ${literal(value)},`)}    },
${body === undefined ? '' : `    data=${literal(body)}.encode(),\n`})
try:
    with urllib.request.urlopen(request, timeout=10) as response:
        print(json.load(response))
except urllib.error.HTTPError as error:
${mayBeUnchanged(request) ? unchanged : ''}    sys.exit(f'{error.code} {error.read().decode()}')`
}

/** @param {SampleRequest} request */
function go(request) {
  const { method, url, body } = request
  const isList = method === 'GET'
  const unchanged = `	if response.StatusCode == http.StatusNotModified {
		fmt.Println("The list has not changed.")
		return
	}
`
  return `package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
${body === undefined ? '' : '	"strings"\n'}	"time"
)

type Item struct {
	PetID    int64
	Quantity int32
	Status   string
}

func main() {
	request, err := http.NewRequest("${method}", ${JSON.stringify(url)}, ${body === undefined ? 'nil' : `strings.NewReader(${JSON.stringify(body)})`})
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("INVENTORY_KEY"))
${headerLines(request, (name, value) => `	request.Header.Set(${JSON.stringify(name)}, ${JSON.stringify(value)})`)}	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
${mayBeUnchanged(request) ? unchanged : ''}	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		log.Fatalf("%s %s", response.Status, body)
	}
	var result ${isList ? '[]Item' : 'Item'}
	if err := json.NewDecoder(response.Body).Decode(&result); err != nil {
		log.Fatal(err)
	}
	fmt.Println(result)
}`
}

/** Generates a program that sends a request, by language. It reads the API key from the variable INVENTORY_KEY. */
export const samples = { curl, JavaScript: javascript, Python: python, Go: go }
