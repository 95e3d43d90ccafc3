import { isUnattended } from '../config/environment.ts'
import { drawStatus, eraseStatus } from '../process/terminal.ts'

/** How soon, and then how often, the line with the progress is written. */
const INTERVAL_MS = 1000

/**
 * Does work and, on a terminal, says meanwhile how far it is, in one line that is written again and is gone at the end.
 *
 * @param describe says what is done, such as "Reading stock.csv: 42 %"
 */
export async function withProgress<Result>(
  describe: () => string,
  work: () => Promise<Result>,
): Promise<Result> {
  if (!process.stderr.isTTY || isUnattended()) return work()
  const began = performance.now()
  const timer = setInterval(() => {
    drawStatus(`${describe()}, ${Math.floor((performance.now() - began) / 1000)} s`)
  }, INTERVAL_MS)
  // Some signals end the process at once.
  process.once('exit', eraseStatus)
  try {
    return await work()
  } finally {
    clearInterval(timer)
    process.off('exit', eraseStatus)
    eraseStatus()
  }
}
