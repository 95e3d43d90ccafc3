import Table from 'cli-table3'

const noLines = {
  top: '',
  'top-mid': '',
  'top-left': '',
  'top-right': '',
  bottom: '',
  'bottom-mid': '',
  'bottom-left': '',
  'bottom-right': '',
  left: '',
  'left-mid': '',
  mid: '',
  'mid-mid': '',
  right: '',
  'right-mid': '',
  middle: '  ',
}

/** Formats aligned columns under headings, without borders and colors, for people and for tools such as awk. */
export function formatTable(headings: string[], rows: string[][]): string {
  const table = new Table({
    head: headings,
    chars: noLines,
    style: { head: [], border: [], 'padding-left': 0, 'padding-right': 0 },
  })
  table.push(...rows)
  return table.toString().replaceAll(/ +$/gm, '')
}
