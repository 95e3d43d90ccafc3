import { execFile } from 'node:child_process'
import { constants } from 'node:fs'
import { access } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'

/** A program of another project that a test starts. */
interface Need {
  readonly program: string
  /** How to get it, as a person would want to be told. */
  readonly from: string
  /** Where it is; by default as `pathOf` finds it. */
  readonly find?: () => Promise<string | undefined>
}

/** The versions of PostgreSQL that the service is promised to work with. */
export const testVersions = [14, 15, 16, 17, 18] as const

/** The commits of the releases from which an upgrade starts. */
export const releases: Readonly<Record<string, string>> = { '1.0.0': '197b744', '2.0.0': '93d0fb6' }

const debian = (program: string, version?: string, name = program): Need => ({
  program,
  from: `the package ${name} of Debian${version === undefined ? '' : `, version ${version} or newer`}`,
})
const haproxy = debian('haproxy', '2.6')
const nginx = debian('nginx', undefined, 'nginx-light')
const openssl = debian('openssl')
const pgbouncer = debian('pgbouncer', '1.18')
const python = debian('python3', '3.9')
const go = debian('go', '1.21', 'golang')
const promtool = debian('promtool', undefined, 'prometheus')
const docker: Need = {
  program: 'docker',
  from: 'https://docs.docker.com: an engine that answers, and Docker Compose 2.24 or newer',
  find: async () => (await outputOf('docker', 'version')) && outputOf('docker', 'compose', 'version'),
}
const formerReleases = Object.values(releases).map(
  (commit): Need => ({
    program: `the commit ${commit}`,
    from: 'git fetch --unshallow',
    find: () => outputOf('git', 'rev-parse', '--verify', `${commit}^{commit}`),
  }),
)
const browser: Need = {
  program: 'Chromium or Chrome',
  from: 'the package chromium of Debian, or CHROME_PATH with the browser',
  find: browserPath,
}
const citus: Need = {
  program: 'Citus',
  from: 'https://docs.citusdata.com; CITUS_BIN has the folder of the programs of its PostgreSQL',
  find: citusPrograms,
}
const postgres = (version: number): Need => ({
  program: `PostgreSQL ${version}`,
  from: `the package postgresql-${version}, or POSTGRES_${version}_BIN with the folder of its programs`,
  find: () => programsOf(version),
})

/** What tests need beside Node. */
const needs: Readonly<Record<string, readonly Need[]>> = {
  'reference.browser.ts': [browser],
  'ways.browser.ts': [browser],
  'alerts.fault.ts': [promtool],
  'balancer.fault.ts': [haproxy, openssl],
  'backup.fault.ts': [docker],
  'citus.fault.ts': [citus],
  'disk-full.fault.ts': [docker],
  'flood.fault.ts': [haproxy],
  'idle-connections.fault.ts': [haproxy],
  'examples.fault.ts': [python, go],
  'pgbouncer.fault.ts': [pgbouncer],
  'postgres-versions.fault.ts': testVersions.map(postgres),
  'proxies.fault.ts': [haproxy, nginx],
  'rate-limit.fault.ts': [haproxy],
  'tls.fault.ts': [openssl],
  'transaction-ids.fault.ts': [postgres(15)],
  'unread-responses.fault.ts': [python],
  'upgrade.fault.ts': [docker, ...formerReleases],
}

/** What the tests need and this machine lacks, a line each. */
export async function missingFor(files: readonly string[]): Promise<string[]> {
  const missing: string[] = []
  for (const file of files) {
    for (const { program, from, find = () => pathOf(program) } of needs[file] ?? []) {
      if ((await find()) === undefined) missing.push(`${file}: ${program} (${from})`)
    }
  }
  return missing
}

/** What a command prints; undefined if it fails. */
async function outputOf(program: string, ...args: string[]): Promise<string | undefined> {
  const { stdout } = await promisify(execFile)(program, args).catch(() => ({ stdout: undefined }))
  return stdout
}

/** Where a program is, on PATH or where Debian puts servers; undefined where it is not. */
export async function pathOf(program: string): Promise<string | undefined> {
  const folders = [...(process.env['PATH'] ?? '').split(path.delimiter), '/usr/sbin', '/usr/local/sbin']
  for (const folder of folders) {
    if (await canAccess(path.join(folder, program), constants.X_OK)) return path.join(folder, program)
  }
  return undefined
}

/** The browser at `CHROME_PATH`, else the first one on PATH; undefined where there is none. */
export async function browserPath(): Promise<string | undefined> {
  if (process.env['CHROME_PATH']) return process.env['CHROME_PATH']
  const names = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable']
  return (await Promise.all(names.map(pathOf))).find((file) => file !== undefined)
}

/** The folder of a version of PostgreSQL: that of POSTGRES_14_BIN for one, else where Debian's packages have it. */
export async function programsOf(version: number): Promise<string | undefined> {
  const folder = process.env[`POSTGRES_${version}_BIN`] ?? `/usr/lib/postgresql/${version}/bin`
  return (await canAccess(path.join(folder, 'initdb'), constants.X_OK)) ? path.dirname(folder) : undefined
}

/** The folder of a PostgreSQL that Citus is installed into: that of CITUS_BIN. */
export async function citusPrograms(): Promise<string | undefined> {
  const folder = process.env['CITUS_BIN'] ?? ''
  const share = (await outputOf(path.join(folder, 'pg_config'), '--sharedir'))?.trim() ?? ''
  const isInstalled = await canAccess(path.join(share, 'extension', 'citus.control'))
  return isInstalled ? path.dirname(folder) : undefined
}

function canAccess(file: string, mode = constants.R_OK): Promise<boolean> {
  return access(file, mode).then(
    () => true,
    () => false,
  )
}
