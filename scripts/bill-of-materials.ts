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
 * Returns the container image's npm packages as a CycloneDX document in JSON, without what comes with the base image. Runs
 * npm in a copy without development packages: in the repository, `npm sbom --omit=dev` omits packages that both the service
 * and a development package need, such as pg.
 */
export async function billOfMaterials(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'petstore-inventory-sbom-'))
  try {
    const {
      devDependencies: _dev,
      optionalDependencies: _optional,
      ...manifest
    } = JSON.parse(await readFile('package.json', 'utf8'))
    // npm names the software after its folder.
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
