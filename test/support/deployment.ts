import { execFile } from 'node:child_process'
import { appendFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { dockerVariables } from './containers.ts'
import { eventually } from './eventually.ts'
import { createSender } from './http.ts'
import { startLoad } from './load.ts'
import { freePort } from './ports.ts'
import { apiKey, temporaryFolder } from './program.ts'

/** Clients that send requests at the same time: few, because the builds and the deployments need the machine. */
const CLIENTS = 4

/** Returns what runs a shell command in a folder, and resolves with what it printed or rejects with its outcome. */
export function shellIn(cwd: string): (command: string) => Promise<string> {
  // Compose prefers variables to `.env`.
  const options = { cwd, env: dockerVariables, maxBuffer: 1e8 }
  return async (command) => (await promisify(execFile)('sh', ['-euc', command], options)).stdout.trim()
}

/** The command that copies the files of the project into the folder of the shell. */
const copyProject =
  `git -C '${process.cwd()}' ls-files -z --cached --others --exclude-standard | ` +
  `tar -C '${process.cwd()}' --null --files-from=- -c | tar -x --no-same-permissions`

/** A deployment by compose. */
export type Deployment = Awaited<ReturnType<typeof startDeployment>>

interface DeploymentOptions {
  /** The commit to deploy; by default, the files of this checkout, as in a clone that was made with umask 077. */
  readonly commit?: string
  /** Further lines of `.env`. */
  readonly settings?: readonly string[]
}

/** Starts a deployment with an inventory that `startLoad` can use. */
export async function startDeployment(t: Test, { commit, settings = [] }: DeploymentOptions = {}) {
  const cwd = await temporaryFolder(t)
  const port = await freePort()
  const sh = shellIn(cwd)
  /** Adds lines to `.env`. */
  const set = (...lines: string[]): Promise<void> =>
    appendFile(path.join(cwd, '.env'), `${lines.join('\n')}\n`)
  const project = `deployment-${process.pid}-${port}`
  await set(`COMPOSE_PROJECT_NAME=${project}`, `API_KEYS=${apiKey}`, `PUBLISH=127.0.0.1:${port}`, ...settings)
  await sh(
    commit === undefined
      ? `${copyProject}; chmod -R go= .`
      : `git -C '${process.cwd()}' archive ${commit} | tar -x`,
  )
  t.teardown(() =>
    sh(`docker compose down --volumes --remove-orphans --timeout 1
      docker image ls --quiet --filter 'reference=${project}-*' | sort -u | xargs -r docker image rm --force`),
  )
  await sh('docker compose build --quiet')
  await sh('docker compose up --quiet-pull --detach --wait')
  await sh(
    String.raw`printf 'petId,quantity\n1,0\n2,0\n' | docker compose exec -T api inventory import - --rows 2`,
  )
  return {
    cwd,
    port,
    sh,
    set,
    /** The containers of services, sorted. */
    containers: async (...services: string[]): Promise<string[]> =>
      (await sh(`docker compose ps --quiet ${services.join(' ')}`)).split('\n').sort(),
    /** The versions of the service's containers. */
    async versions(): Promise<string[]> {
      const labels = [
        `com.docker.compose.project=${project}`,
        'org.opencontainers.image.title=petstore-inventory',
      ]
      const filters = labels.map((label) => `--filter label=${label}`).join(' ')
      const version = '{{.Label "org.opencontainers.image.version"}}'
      return (await sh(`docker ps ${filters} --format '${version}'`)).split('\n')
    },
    /** Replaces the files with those of this checkout. */
    async checkOut() {
      // Like git, it keeps the folders: a mount does not follow one that is replaced.
      await sh('find . -type f ! -path ./.env -delete')
      await sh(copyProject)
    },
  }
}

/** Does something while clients list and update. Returns its error, if it fails, and what requests failed. */
export async function underLoad(t: Test, { port }: Deployment, name: string, action: () => Promise<unknown>) {
  await eventually('the service', async () => (await createSender(port)('GET', '/readyz')).status === 200)
  const loads = [true, false].map((keepAlive) =>
    startLoad(t, { ports: [port], clients: CLIENTS / 2, pets: [keepAlive ? 1 : 2], keepAlive }),
  )
  await Promise.all(loads.map((load) => load.served(100)))
  const error = await action().then(
    () => undefined,
    (error: unknown) => `${error}`,
  )
  await Promise.all(loads.map((load) => load.served(100)))
  await Promise.all(loads.map((load) => load.stop()))
  const failures = loads
    .flatMap((load) => load.failures)
    .map(({ kind, answer }) => `${kind}: ${answer ? `${answer.status} ${answer.text}` : 'no answer'}`)
  const requests = failures.length + loads.reduce((sum, { successes }) => sum + successes, 0)
  t.comment(`${name}: ${failures.length} of ${requests} requests failed`)
  return { error, failures, loads }
}
