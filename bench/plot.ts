import { init } from 'echarts'
import { type Case, type ContenderName, contenderNames } from './cases.ts'
import type { Results } from './results.ts'

const works = ['list', 'update'] as const
const shown: readonly ContenderName[] = ['service', 'plain', 'node-http', 'direct']

/** Plots throughput against connections as SVG, lists next to updates; undefined if no such case was measured. */
export function throughputPlot(results: Results): string | undefined {
  const steps = results.cases.filter(({ name }) => works.some((work) => name.startsWith(`${work}-`)))
  if (steps.length === 0) return undefined
  const chart = init(null, null, { renderer: 'svg', ssr: true, width: 1000, height: 420 })
  chart.setOption({
    animation: false,
    backgroundColor: '#fff',
    title: works.map((work, index) => ({
      text: work === 'list' ? 'Lists a second' : 'Updates a second',
      left: index === 0 ? '26%' : '76%',
      textAlign: 'center',
    })),
    legend: { bottom: 0, itemGap: 30 },
    grid: [
      { left: 70, right: '53%', top: 50, bottom: 80 },
      { left: '56%', right: 30, top: 50, bottom: 80 },
    ],
    xAxis: works.map((work, gridIndex) => ({
      gridIndex,
      type: 'category',
      name: 'connections',
      nameLocation: 'middle',
      nameGap: 28,
      data: steps.filter((step) => step.work === work).map(({ connections }) => String(connections)),
    })),
    yAxis: works.map((_, gridIndex) => ({ gridIndex, type: 'log' })),
    series: works.flatMap((work, index) =>
      shown.map((contender) => ({
        type: 'line',
        name: contenderNames[contender],
        xAxisIndex: index,
        yAxisIndex: index,
        data: steps.filter((step) => step.work === work).map((step) => throughput(results, step, contender)),
      })),
    ),
  })
  const svg = chart.renderToSVGString()
  chart.dispose()
  return svg
}

/** A value of '-' leaves a gap in the line. */
function throughput(results: Results, { name }: Case, contender: ContenderName): number | '-' {
  const value = results.median(name, contender, 'perSecond')
  return Number.isNaN(value) ? '-' : value
}
