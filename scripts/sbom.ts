/** Prints the bill of materials of the container image's npm packages: `npm run --silent sbom >sbom.json`. */
import { billOfMaterials } from './bill-of-materials.ts'

process.stdout.write(await billOfMaterials())
