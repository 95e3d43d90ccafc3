// Writes openapi.d.ts, the types of a client, from a description such as ../../openapi.json or https://…/openapi.json:
//
//   npx tsx generate.ts ../../openapi.json >openapi.d.ts
//
// Needs openapi-typescript and typescript. It does what the command openapi-typescript does, and makes a bigint of an
// int64, where that makes a number, which cannot hold it.

import path from 'node:path'
import { pathToFileURL } from 'node:url'
import openapiTS, { astToString } from 'openapi-typescript'
import ts from 'typescript'

const [description = ''] = process.argv.slice(2)
const address = URL.canParse(description) ? new URL(description) : pathToFileURL(path.resolve(description))
const types = await openapiTS(address, {
  transform: ({ format }) =>
    format === 'int64' ? ts.factory.createKeywordTypeNode(ts.SyntaxKind.BigIntKeyword) : undefined,
})
process.stdout.write(astToString(types))
