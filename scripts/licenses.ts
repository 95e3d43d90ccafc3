/**
 * Prints the license of each npm package in the container image, and fails if one is not known to allow the distribution of
 * the unchanged package within an image.
 */
import { Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { formatTable } from '../src/cli/table.ts'
import { billOfMaterials } from './bill-of-materials.ts'

/** SPDX expressions, as packages declare them. */
const allowed = ['0BSD', 'Apache-2.0', 'BSD-2-Clause', 'BSD-3-Clause', 'BlueOak-1.0.0', 'ISC', 'MIT']

const Bill = Type.Object({
  components: Type.Array(
    Type.Object({
      name: Type.String(),
      version: Type.String(),
      licenses: Type.Optional(
        Type.Array(
          Type.Object({
            expression: Type.Optional(Type.String()),
            license: Type.Optional(
              Type.Object({ id: Type.Optional(Type.String()), name: Type.Optional(Type.String()) }),
            ),
          }),
        ),
      ),
    }),
  ),
})

const { components } = Value.Parse(Bill, JSON.parse(await billOfMaterials()))
const rows: string[][] = []
let refused = 0
for (const { name, version, licenses = [] } of components) {
  const terms = licenses.map(({ expression, license }) => expression ?? license?.id ?? license?.name ?? '')
  const isAllowed = terms.length > 0 && terms.every((term) => allowed.includes(term))
  if (!isAllowed) refused += 1
  rows.push([name, version, `${terms.join(', ') || 'none'}${isAllowed ? '' : ' (not allowed)'}`])
}
console.log(formatTable(['PACKAGE', 'VERSION', 'LICENSE'], rows))
if (refused > 0) {
  console.error(`${refused} of ${components.length} packages have a license that is not allowed.`)
  process.exitCode = 1
}
