import { type ContenderName, contenderNames } from './cases.ts'
import { type Outcome, outcomes } from './goals.ts'
import type { Results } from './results.ts'

/** The contenders that others are compared with. */
const baselines: readonly ContenderName[] = ['plain', 'go', 'node-http', 'direct', 'copy']

/** All results as Markdown that is also readable in a terminal: a table for each title, then the goals. */
export function tables(results: Results): string {
  const titles = [...new Set(results.cases.map(({ title }) => title))]
  const parts = titles.map((title) => `### ${title}\n\n${resultTable(results, title)}`)
  const reached = outcomes(results)
  if (reached.length > 0) parts.push(`### Goals\n\n${goalTable(reached)}`)
  return parts.join('\n\n')
}

function resultTable(results: Results, title: string): string {
  const cases = results.cases.filter((given) => given.title === title)
  const compared = baselines.filter((name) => cases.some(({ contenders }) => contenders.includes(name)))
  const head = ['Connections', 'Contender', 'per second', 'p50 ms', 'p99 ms', 'errors']
  const against = compared.map((name) => `× ${contenderNames[name]}`)
  const rows = cases.flatMap(({ name, connections, contenders }) =>
    contenders.map((contender) => [
      String(connections),
      contenderNames[contender],
      figure(results.median(name, contender, 'perSecond')),
      figure(results.median(name, contender, 'p50')),
      figure(results.median(name, contender, 'p99')),
      String(results.errors(name, contender)),
      ...compared.map((other) => figure(results.ratio(name, contender, other, 'perSecond'))),
    ]),
  )
  return table([...head, ...against], rows)
}

function goalTable(reached: readonly Outcome[]): string {
  const rows = reached.map(({ work, goal, reached, met }) => [
    work,
    goal,
    figure(reached),
    Number.isNaN(reached) ? 'not measured' : met ? 'yes' : 'no',
  ])
  return table(['Work', 'Goal', 'Reached', 'Met'], rows)
}

/** Formats three digits, which is already more than the noise of a run justifies. */
function figure(value: number): string {
  if (Number.isNaN(value)) return '–'
  return value.toLocaleString('en', { maximumSignificantDigits: 3 })
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((cell, column) =>
    Math.max(cell.length, ...rows.map((row) => row[column]?.length ?? 0)),
  )
  // Left-align words, right-align figures.
  const isText = head.map((_, column) => rows.some((row) => /[a-z]/i.test(row[column] ?? '')))
  const line = (cells: readonly string[]): string => {
    const padded = cells.map((cell, column) => {
      const width = widths[column] ?? 0
      return isText[column] ? cell.padEnd(width) : cell.padStart(width)
    })
    return `| ${padded.join(' | ')} |`
  }
  const rule = widths.map((width, column) =>
    isText[column] ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`,
  )
  return [line(head), line(rule), ...rows.map(line)].join('\n')
}
