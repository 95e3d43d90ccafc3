import { relative } from 'node:path'

/** What of a diagnosis is not printed: the place is, and the code there can be looked up. */
const OMITTED = ['at', 'source', 'compare', 'tapCaught']
const INDENT = 4

/**
 * Prints what tap reports (TAP 14) in few lines: one for each file, and each failure once, with its file, its test and the
 * reason.
 */
export class Report {
  readonly #total: number
  /** The tests around the current line, the file first. */
  #names: string[] = []
  /** Whether a test below that level has failed. */
  #hasFailed: boolean[] = []
  #passed = 0
  #failed = 0
  #files = 0
  readonly #failedFiles = new Set<string>()
  readonly #startedAt = performance.now()
  #diagnosis: string[] | undefined
  #isLeaf = false

  /** @param total how many files run */
  constructor(total: number) {
    this.#total = total
  }

  /** Takes the next line of tap's output. */
  read(line: string): void {
    if (this.#diagnosis !== undefined) {
      if (line.trim() === '...') this.#printFailure()
      else this.#diagnosis.push(line)
      return
    }
    const [, spaces = '', text = ''] = /^( *)(.*)$/.exec(line) ?? []
    const level = spaces.length / INDENT
    const [, subtest] = /^# Subtest: (.*)$/.exec(text) ?? []
    if (subtest !== undefined) this.#names = [...this.#names.slice(0, level), subtest]
    else if (text === '---' && this.#isLeaf) this.#diagnosis = []
    else {
      const [, failed, name, time] = /^(not )?ok \d+(?: - (.*?))?(?: # time=([\d.]+)ms)?$/.exec(text) ?? []
      if (name !== undefined || failed !== undefined) this.#result(level, !failed, name ?? '', time)
      else this.#isLeaf = false
    }
  }

  /** Prints the summary. Returns whether all tests passed. */
  end(): boolean {
    const seconds = Math.round((performance.now() - this.#startedAt) / 1000)
    console.log(`\n${this.#passed} tests of ${this.#files} files passed in ${seconds} s.`)
    if (this.#failed > 0) console.log(`${this.#failed} tests failed, in ${[...this.#failedFiles].join(', ')}`)
    const missing = this.#total - this.#files
    if (missing > 0) console.log(`${missing} files did not end.`)
    return this.#failedFiles.size === 0 && missing === 0
  }

  #result(level: number, isOk: boolean, name: string, time: string | undefined): void {
    const isAbove = !isOk && this.#hasFailed[level + 1] === true
    this.#hasFailed = this.#hasFailed.slice(0, level + 1)
    this.#isLeaf = !isOk && !isAbove
    // The tests directly in a file are counted, however many steps and assertions they have.
    if (level === 1 && isOk) this.#passed++
    if (!isOk && (level === 1 || (level === 0 && !isAbove))) this.#failed++
    this.#hasFailed[level] ||= !isOk
    if (level > 0) this.#names = [...this.#names.slice(0, level), name]
    // The result of a file that reached its limit is about another file than the last one: the diagnosis names it.
    else if (name === 'timeout!') this.#isLeaf = true
    else {
      this.#names = [name]
      this.#fileEnded(isOk, name, time)
    }
  }

  #fileEnded(isOk: boolean, name: string, time?: string): void {
    this.#files++
    const file = sourceOf(name)
    if (!isOk) this.#failedFiles.add(file)
    const seconds = time === undefined ? '' : ` (${(Number(time) / 1000).toFixed(1)} s)`
    console.log(`${isOk ? 'pass' : 'FAIL'} ${file}${seconds}`)
  }

  #printFailure(): void {
    const text = (this.#diagnosis ?? []).join('\n')
    this.#diagnosis = undefined
    this.#isLeaf = false
    const [, expired] = /^ *expired: (.*\.js)$/m.exec(text) ?? []
    if (expired !== undefined) {
      this.#fileEnded(false, expired)
      // Printed with the test that had not ended.
      if (this.#names[0] === expired) return
      this.#names = [expired]
    }
    const [file = '', ...tests] = this.#names
    const [, place = file, line] = /^ *fileName: (.*)\n *lineNumber: (\d+)/m.exec(text) ?? []
    console.log(`\nFAILED ${sourceOf(place)}${line === undefined ? '' : `:${line}`}`)
    for (const name of tests) console.log(`  ${name}`)
    if (/^ *(signal: SIGALRM|expired:)/m.test(text)) console.log('  The file reached its time limit.')
    else for (const line of reasonIn(text)) console.log(`    ${line}`)
    console.log('')
  }
}

/** An assertion's stack says no more than its place. */
function reasonIn(diagnosis: string): string[] {
  const omitted = diagnosis.includes('tapCaught:') ? OMITTED : [...OMITTED, 'stack']
  const lines = diagnosis.split('\n').filter((line) => line.trim() !== '')
  const indent = Math.min(...lines.map((line) => line.search(/\S/)))
  let isOmitted = false
  return lines
    .map((line) => line.slice(indent))
    .filter((line) => {
      const [, key] = /^(\w+):/.exec(line) ?? []
      if (key !== undefined) isOmitted = omitted.includes(key)
      return !isOmitted
    })
}

/** The path of a compiled file as TypeScript, from the root. */
function sourceOf(file: string): string {
  return relative('', file)
    .replace(/^\.test-build\//, '')
    .replace(/\.js$/, '.ts')
}
