import { packageVersion } from '../package-version.ts'
import type { Generator } from './generator.ts'
import { loadProcesses } from './parallelism.ts'
import { inProcesses, split } from './processes.ts'
import { shortLists } from './short-lists.ts'

/** The load generator autocannon. */
export function autocannonGenerator(): Generator {
  return {
    name: packageVersion('autocannon'),
    async run(load) {
      const orders = split(load.connections, loadProcesses(load.connections)).map((connections) => ({
        ...load,
        connections,
      }))
      const { sample, answers, bytes } = await inProcesses('./autocannon-process.ts', orders)
      return { ...sample, errors: sample.errors + shortLists(load, answers, bytes) }
    },
  }
}
