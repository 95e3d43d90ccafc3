import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { type Case, type Contender, type ContenderName, contenderNames } from './cases.ts'
import { startDelayingProxy } from './conditions.ts'
import { type ContenderOptions, openContender } from './contenders.ts'
import type { Results } from './results.ts'
import type { Sample } from './statistics.ts'

export interface MeasureOptions extends Omit<ContenderOptions, 'list' | 'listFile'> {
  readonly rounds: number
  readonly seconds: number
  readonly results: Results
  /** Aborts the run before the next measurement. */
  readonly stop: AbortSignal
  /** Called with every contender that was opened, so that it is stopped if the run ends early. */
  readonly onOpen: (stop: () => Promise<void>) => void
}

/** Cases that share their servers: one size of inventory, and one distance to the database. */
type Setting = readonly [Case, ...Case[]]

/** Groups cases by setting, in their order. */
export function settingsOf(cases: readonly Case[]): Setting[] {
  const settings = new Map<string, [Case, ...Case[]]>()
  for (const given of cases) {
    const name = `${given.entries} ${given.roundTripMs ?? 0}`
    const setting = settings.get(name)
    if (setting) setting.push(given)
    else settings.set(name, [given])
  }
  return [...settings.values()]
}

/** Measures the cases of a setting: fills the inventory, starts the contenders, and measures them in rounds. */
export async function measureSetting(cases: Setting, options: MeasureOptions): Promise<void> {
  const { database, onOpen } = options
  const [{ entries, roundTripMs = 0 }] = cases
  const distance = roundTripMs === 0 ? '' : `, the database ${roundTripMs} ms away`
  console.log(`\n${entries.toLocaleString('en')} entries${distance}`)
  const proxy =
    roundTripMs === 0 ? undefined : await startDelayingProxy(options.setup.databaseUrl, roundTripMs)
  if (proxy !== undefined) onOpen(proxy.stop)
  const setup = { ...options.setup, databaseUrl: proxy?.url ?? options.setup.databaseUrl }
  await database.fill(entries)
  const list = await database.list()
  const listFile = path.join(setup.directory, 'list.json')
  await writeFile(listFile, list)

  const contenders = new Map<ContenderName, Contender>()
  for (const name of new Set(cases.flatMap((given) => given.contenders))) {
    const contender = await openContender(name, { ...options, setup, list, listFile })
    contenders.set(name, contender)
    onOpen(() => contender.stop())
  }
  for (const given of cases) await measureCase(given, contenders, options)
  for (const contender of contenders.values()) await contender.stop()
  await proxy?.stop()
}

/** Each round measures all contenders, so that a slow minute of the machine affects all of them. */
async function measureCase(
  given: Case,
  contenders: ReadonlyMap<ContenderName, Contender>,
  options: MeasureOptions,
): Promise<void> {
  const remaining = new Set(given.contenders)
  for (let round = 0; round < options.rounds; round++) {
    for (const name of remaining) {
      const contender = contenders.get(name)
      if (contender === undefined) continue
      options.stop.throwIfAborted()
      try {
        const sample = await takeTurn(given, contender, round === 0, options)
        options.results.add(given, name, sample)
        console.log(`  ${given.name}, ${contenderNames[name]}: ${inWords(sample)}`)
      } catch (error) {
        options.stop.throwIfAborted()
        remaining.delete(name)
        const reason = error instanceof Error ? error.message : String(error)
        options.results.addFailure(given, name, reason)
        console.error(`  ${given.name}, ${contenderNames[name]}: FAILED: ${reason}`)
      }
    }
  }
}

async function takeTurn(
  given: Case,
  contender: Contender,
  isFirst: boolean,
  { database, seconds }: MeasureOptions,
): Promise<Sample> {
  // Requests that the generator aborted may still be on their way from the last server to the database.
  await database.quiet()
  await database.reset()
  await contender.verify(given)
  // Once is enough: in later rounds the code is compiled and the connections are open.
  if (isFirst && seconds > 1) await contender.measure(given, 1)
  const sample = await contender.measure(given, seconds)
  if (sample.perSecond === 0) throw new Error(`no response within ${seconds} s`)
  return sample
}

function inWords({ perSecond, p50, p99, errors }: Sample): string {
  const failed = errors === 0 ? '' : `, ${errors} FAILED`
  return `${perSecond.toFixed(1)} a second, p50 ${p50.toFixed(2)} ms, p99 ${p99.toFixed(2)} ms${failed}`
}
