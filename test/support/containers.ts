import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { promisify } from 'node:util'

/** The variables with which Docker finds its engine, and no setting of the service or of HAProxy. */
export const dockerVariables: NodeJS.ProcessEnv = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => /^(PATH|HOME|DOCKER_\w+)$/.test(name)),
)

/** Returns the image of a program in `docker-compose.yml`. */
export async function readImage(program: 'postgres' | 'haproxy'): Promise<string> {
  const compose = await readFile('docker-compose.yml', 'utf8')
  const [, image = ''] = new RegExp(`image: (${program}:\\S+)`).exec(compose) ?? []
  return image
}

/** Prints which HAProxy the tests use, and returns the environment variable by which `startBalancer` knows. */
export async function chooseBalancer(): Promise<Record<string, string>> {
  const image = await readImage('haproxy')
  try {
    await promisify(execFile)('docker', ['run', '--rm', image, 'haproxy', '-v'])
    console.log(`HAProxy for the tests: ${image} in a container, because a Docker engine answers`)
    return { TEST_HAPROXY_IMAGE: image }
  } catch {
    console.log(`HAProxy for the tests: the installed one, because Docker runs no container of ${image}`)
    return {}
  }
}
