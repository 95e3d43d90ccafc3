import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { type Case, type Contender, type ContenderName, contenderNames } from './cases.ts'
import { startDelayingProxy } from './conditions.ts'
import { type ContenderOptions, openContender } from './contenders.ts'
import type { BenchDatabase } from './database.ts'
import type { Results } from './results.ts'
import type { Sample } from './statistics.ts'

/**
 * A warm-up ends after this many responses for each process, or this time for each. V8 compiles and recompiles a server's code
 * during its first 15,000 requests, or 25,000 with Node 24; meanwhile, a request takes up to three times the CPU time.
 */
const WARM_UP_RESPONSES = 30_000
const WARM_UP_SECONDS = 30

export interface MeasureOptions extends Omit<ContenderOptions, 'list' | 'listFile'> {
  readonly rounds: number
  readonly seconds: number
  readonly results: Results
  /** Ends the run before the next measurement. */
  readonly stop: AbortSignal
  /** Called for every contender that was opened, so that it can be stopped if the run ends early. */
  readonly onOpen: (stop: () => Promise<void>) => void
}

/** Cases that share their servers: those with the same number of entries and the same round trip. */
type Setting = readonly [Case, ...Case[]]

/** Groups cases by setting, and keeps their order. */
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
  const names = new Set(cases.flatMap((given) => given.contenders))
  await database.fill(entries)
  const list = await database.list()
  const listFile = path.join(options.setup.directory, 'list.json')
  await writeFile(listFile, list)

  const contenders = new Map<ContenderName, Contender>()
  const setup = { ...options.setup, databaseUrl: proxy?.url ?? database.url }
  for (const name of names) {
    const contender = await openContender(name, { ...options, setup, list, listFile })
    contenders.set(name, contender)
    onOpen(() => contender.stop())
  }
  for (const given of cases) await measureCase(given, contenders, options)
  for (const contender of contenders.values()) await contender.stop()
  await proxy?.stop()
}

/** Measures all contenders in each round, so that a temporary slowdown of the machine affects all of them. */
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
  // The previous server may still be sending statements for requests that the load generator aborted.
  await database.quiet()
  await database.reset()
  await contender.verify(given)
  if (isFirst && seconds > 1) await warmUp(given, contender)
  const before = await cpuSeconds(contender, database)
  const sample = await contender.measure(given, seconds)
  const after = await cpuSeconds(contender, database)
  if (sample.perSecond === 0) throw new Error(`no response within ${seconds} s`)
  const perResponse = (name: keyof CpuSeconds): number => ((after[name] - before[name]) * 1e6) / sample.count
  return {
    ...sample,
    contenderCpuUs: perResponse('contender'),
    databaseCpuUs: perResponse('database'),
  }
}

/** Generates the load of the case until V8 has compiled the code for it. */
async function warmUp(given: Case, contender: Contender): Promise<void> {
  const end = performance.now() + WARM_UP_SECONDS * 1000
  let responses = 0
  do responses += (await contender.measure(given, 1)).count
  while (responses < WARM_UP_RESPONSES && performance.now() < end)
}

interface CpuSeconds {
  readonly contender: number
  readonly database: number
}

/** Returns the CPU times of a contender and of PostgreSQL so far. They are NaN if they are unknown. */
async function cpuSeconds(contender: Contender, database: BenchDatabase): Promise<CpuSeconds> {
  return {
    contender: (await contender.cpuSeconds?.()) ?? Number.NaN,
    database: (await database.cpuSeconds()) ?? Number.NaN,
  }
}

function inWords({ perSecond, p50, p99, errors, contenderCpuUs, databaseCpuUs }: Sample): string {
  const failed = errors === 0 ? '' : `, ${errors} FAILED`
  const cpu = [contenderCpuUs, databaseCpuUs].map((value) => value?.toFixed(0)).join('/')
  return `${perSecond.toFixed(1)} a second, p50 ${p50.toFixed(2)} ms, p99 ${p99.toFixed(2)} ms, CPU ${cpu} µs${failed}`
}
