import { contenderNames, toName } from './cases.ts'
import { figure, median, type Results } from './report.ts'

const WIDTH = 760
const LEFT = 180
const LONGEST = 480
const BAR = 16

const STYLE = `text { font: 13px system-ui, sans-serif; fill: #57606a } .service { fill: #0969da } .plain { fill: #afb8c1 } .go { fill: #6e7781 }
@media (prefers-color-scheme: dark) { text { fill: #9198a1 } .service { fill: #4493f8 } .plain { fill: #59636e } .go { fill: #9198a1 } }`

/** Draws the requests a second of the contenders of each case, as an SVG in the colors of the reader's theme. */
export function chart(results: Results): string {
  const keys = Object.entries(contenderNames).map(([contender, name], index) => {
    const x = LEFT + 130 * index
    return bar(contender, x, 0, BAR) + label(x + BAR, 0, name)
  })
  const lines = [label(0, 0, 'requests a second') + keys.join('')]
  let y = 2 * BAR
  for (const [benchCase, samples] of results) {
    const speeds = benchCase.contenders.map((contender) => ({
      contender,
      speed: median(samples.get(contender)?.map(({ perSecond }) => perSecond) ?? []),
    }))
    // Each case has a scale of its own: the fastest list of the largest table is shorter than a pixel of the others.
    const scale = LONGEST / Math.max(...speeds.map(({ speed }) => speed))
    let line = label(0, y, toName(benchCase))
    for (const { contender, speed } of speeds) {
      line += bar(contender, LEFT, y, speed * scale) + label(LEFT + speed * scale, y, figure(speed))
      y += BAR
    }
    lines.push(line)
    y += BAR / 2
  }
  const name = 'Requests a second of each contender, by case; longer is faster'
  const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y}" role="img" aria-label="${name}">`
  return `${[head, `<style>${STYLE}</style>`, ...lines, '</svg>'].join('\n')}\n`
}

const bar = (contender: string, x: number, y: number, length: number): string =>
  `<rect class="${contender}" x="${x}" y="${y + 1}" width="${length.toFixed(1)}" height="${BAR - 2}"/>`

const label = (x: number, y: number, text: string): string =>
  `<text x="${(x + 6).toFixed(1)}" y="${y + 13}">${text}</text>`
