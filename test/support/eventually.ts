import { setTimeout } from 'node:timers/promises'

/** How long to wait by default, in milliseconds: far more than it takes, for busy machines. */
const LIMIT_MS = 120_000

/** Waits until a condition of this process holds. Fails with what it waited for. */
export async function until(what: string, isTrue: () => boolean, limitMs = LIMIT_MS): Promise<void> {
  await eventually(what, async () => isTrue(), limitMs, 1)
}

/** Tries until `attempt` returns something other than false, and returns that. Fails with what it waited for. */
export async function eventually<Found>(
  what: string,
  attempt: () => Promise<Found | false | undefined>,
  limitMs = LIMIT_MS,
  pauseMs = 20,
): Promise<Found> {
  const deadline = performance.now() + limitMs
  for (;;) {
    const found = await attempt()
    if (found !== undefined && found !== false) return found
    if (performance.now() > deadline) throw new Error(`Waited ${limitMs} ms for ${what}`)
    await setTimeout(pauseMs)
  }
}
