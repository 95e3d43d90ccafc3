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
 * @param {Record<string, string>} headers
 * @param {(name: string, value: string) => string} line
 */
const linesOf = (headers, line) =>
  Object.entries(headers).reduce((lines, header) => lines + line(...header), '')

/**
 * Generates a program that sends a request, by language. It reads the API key from the variable INVENTORY_KEY.
 *
 * @type {Record<string, (request: SampleRequest) => string>}
 */
export const samples = {
  curl: ({ method, url, headers, body }) =>
    [
      `curl ${shellString(url)}`,
      '--max-time 10',
      ...(method === 'GET' ? ['--compressed'] : [`--request ${method}`]),
      '--header "Authorization: Bearer $INVENTORY_KEY"',
      ...Object.entries(headers).map(([name, value]) => `--header ${shellString(`${name}: ${value}`)}`),
      ...(body === undefined ? [] : [`--data-raw ${shellString(body)}`]),
    ].join(' \\\n  '),

  JavaScript: ({ method, url, headers, body }) => `const response = await fetch(${literal(url)}, {
  method: '${method}',
  headers: {
    Authorization: \`Bearer \${process.env.INVENTORY_KEY}\`,
${linesOf(headers, (name, value) => `    ${literal(name)}: ${literal(value)},\n`)}  },
${body === undefined ? '' : `  body: ${literal(body)},\n`}  signal: AbortSignal.timeout(10_000),
})
const text = await response.text()
if (!response.ok) throw new Error(\`\${response.status} \${text}\`)

// JSON.parse rounds integers above 2^53: read petId as a string, then as a BigInt.
const exact = text.replace(/(?<=[{,\\s])"petId"\\s*:\\s*(-?\\d+)/g, '"petId":"$1"')
console.log(JSON.parse(exact, (name, value) => (name === 'petId' ? BigInt(value) : value)))`,

  Python: ({ method, url, headers, body }) => `import json
import os
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

request = Request(
    ${literal(url)},
    method='${method}',
    headers={
        'Authorization': 'Bearer ' + os.environ['INVENTORY_KEY'],
${linesOf(headers, (name, value) => `        ${literal(name)}: ${literal(value)},\n`)}    },
${body === undefined ? '' : `    data=${literal(body)}.encode(),\n`})
try:
    with urlopen(request, timeout=10) as response:
        print(json.load(response))
except HTTPError as error:
    sys.exit(f'{error.code} {error.read().decode()}')`,

  Go: ({ method, url, headers, body }) => `package main

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
${linesOf(headers, (name, value) => `	request.Header.Set(${JSON.stringify(name)}, ${JSON.stringify(value)})\n`)}	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		log.Fatalf("%s %s", response.Status, body)
	}
	var result ${method === 'GET' ? '[]Item' : 'Item'}
	if err := json.NewDecoder(response.Body).Decode(&result); err != nil {
		log.Fatal(err)
	}
	fmt.Println(result)
}`,
}
