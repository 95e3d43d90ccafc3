import { availableParallelism } from 'node:os'

/**
 * The number of threads or processes that generate the load. One is not enough for a server that only sends bytes; more
 * would take the cores that the servers and the database need.
 */
export function loadProcesses(connections: number): number {
  return Math.min(connections, availableParallelism() > 2 ? 2 : 1)
}
