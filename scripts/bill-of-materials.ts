import { execFile } from 'node:child_process'
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)

async function npm(folder: string, ...args: string[]): Promise<string> {
  const { stdout } = await run('npm', args, {
    cwd: folder,
    maxBuffer: 64 * 1024 * 1024,
    shell: process.platform === 'win32',
  })
  return stdout
}

/**
 * The packages that the container image has from npm, as a CycloneDX document in JSON. `npm sbom --omit=dev` in the
 * repository itself would leave out what the service and a development package both need, such as pg; so npm is asked in
 * a copy that has nothing else. What comes with the base image is not in it.
 */
export async function billOfMaterials(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'petstore-inventory-sbom-'))
  try {
    const {
      devDependencies: _dev,
      optionalDependencies: _optional,
      ...manifest
    } = JSON.parse(await readFile('package.json', 'utf8'))
    // npm calls the software what its folder is called.
    const copy = path.join(folder, manifest.name)
    await mkdir(copy)
    await writeFile(path.join(copy, 'package.json'), JSON.stringify(manifest))
    await copyFile('package-lock.json', path.join(copy, 'package-lock.json'))
    await npm(copy, 'install', '--package-lock-only', '--offline', '--ignore-scripts', '--no-audit')
    const options = ['--sbom-format=cyclonedx', '--sbom-type=application', '--omit=optional']
    return await npm(copy, 'sbom', '--package-lock-only', ...options)
  } finally {
    await rm(folder, { recursive: true })
  }
}
