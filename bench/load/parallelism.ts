import { availableParallelism } from 'node:os'

/**
 * How many threads or processes make the load of so many connections. One is not enough for a server that only sends
 * bytes; more would take the cores that the servers and the database need.
 */
export function loadProcesses(connections: number): number {
  return Math.min(connections, availableParallelism() > 2 ? 2 : 1)
}
