import { printable } from '../process/printable.ts'

/** Formats rows below headings in aligned columns, for people and for tools such as awk. */
export function formatTable(headings: string[], rows: string[][]): string {
  const lines = [headings, ...rows].map((cells) => cells.map(printable))
  const widths = headings.map((_, column) =>
    lines.reduce((width, cells) => Math.max(width, cells[column]?.length ?? 0), 0),
  )
  const format = (cells: string[]): string =>
    cells.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')
  return lines.map((cells) => format(cells).trimEnd()).join('\n')
}

/** Formats a whole number with thousands separators. */
export function formatNumber(value: number): string {
  return value.toLocaleString('en-US', { maximumFractionDigits: 0 })
}
