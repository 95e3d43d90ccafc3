import { readFile } from 'node:fs/promises'

/** Returns the image of a program in `docker-compose.yml`. */
export async function readImage(program: 'postgres' | 'haproxy'): Promise<string> {
  const compose = await readFile('docker-compose.yml', 'utf8')
  const [, image = ''] = new RegExp(`image: (${program}:\\S+)`).exec(compose) ?? []
  return image
}

/** Returns why no container was started, in one line. */
export function toReason(image: string, error: unknown): string {
  const [reason] = String(error instanceof Error ? error.message : error).split('\n')
  return `no container of ${image} could be started: ${reason}`
}

/** Prints which HAProxy the tests use, and returns the environment variable by which `startBalancer` knows. */
export async function chooseBalancer(): Promise<Record<string, string>> {
  const image = await readImage('haproxy')
  const { GenericContainer, Wait } = await import('testcontainers')
  try {
    const trial = new GenericContainer(image).withCommand(['haproxy', '-v'])
    await (await trial.withWaitStrategy(Wait.forOneShotStartup()).start()).stop()
    console.log(`HAProxy for the tests: ${image} in a container, because a Docker engine answers`)
    return { TEST_HAPROXY_IMAGE: image }
  } catch (error) {
    console.log(`HAProxy for the tests: the installed one, because ${toReason(image, error)}`)
    return {}
  }
}
