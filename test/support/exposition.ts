/** A metric as Prometheus reads it. */
export interface ExposedFamily {
  readonly name: string
  readonly help: string
  readonly type: string
  readonly series: ExposedSeries[]
}

export interface ExposedSeries {
  /** The name with its labels, as it stands in the text. */
  readonly id: string
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** Reads the text format of Prometheus; every line must be well-formed, and every series belong to the family above it. */
export function parseExposition(text: string): Map<string, ExposedFamily> {
  const families = new Map<string, ExposedFamily>()
  let family: ExposedFamily | undefined
  let help: [name: string, text: string] | undefined
  for (const line of text.split('\n')) {
    const [, keyword, named = '', rest = ''] = /^# (HELP|TYPE) (\S+) (.*)$/.exec(line) ?? []
    if (keyword === 'HELP') {
      help = [named, rest]
    } else if (keyword === 'TYPE') {
      if (help?.[0] !== named || families.has(named)) throw new Error(`Out of order: ${line}`)
      family = { name: named, help: help[1], type: rest, series: [] }
      families.set(named, family)
    } else if (line !== '') {
      const [, id = '', name = '', labels = '', value = ''] = /^((\w+)(?:\{(.*)\})?) (\S+)$/.exec(line) ?? []
      const suffixes = family?.type === 'histogram' ? ['_bucket', '_sum', '_count'] : ['']
      if (!family || !suffixes.some((suffix) => name === `${family?.name}${suffix}`))
        throw new Error(`Not understood: ${line}`)
      const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)",?/g)].map(([, key, of]) => [key, of])
      family.series.push({
        id,
        name,
        labels: Object.fromEntries(pairs),
        value: value === '+Inf' ? Number.POSITIVE_INFINITY : Number(value),
      })
    }
  }
  return families
}

/** The sum of the values of the series with a name and, among others, these labels. */
export function total(
  families: ReadonlyMap<string, ExposedFamily>,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number {
  const series = [...families.values()].flatMap((family) => family.series)
  return series
    .filter((one) => one.name === name && Object.entries(labels).every(([key, of]) => one.labels[key] === of))
    .reduce((sum, { value }) => sum + value, 0)
}
