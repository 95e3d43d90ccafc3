import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import GithubSlugger from 'github-slugger'
import type { Nodes, Root } from 'mdast'
import { fromMarkdown } from 'mdast-util-from-markdown'
import { toString as toText } from 'mdast-util-to-string'
import { visit } from 'unist-util-visit'

/** Where pages for people are, from the repository's root. */
const FOLDERS = ['.', 'docs', 'bench', 'examples', 'ops']

/** Reads the pages in Markdown. */
export function readPages() {
  const files = FOLDERS.flatMap((folder) => readdirSync(folder).map((name) => path.join(folder, name)))
  return files.filter((file) => file.endsWith('.md')).map(readPage)
}

/** Reads the type and the labels of each metric in docs/metrics.md, but of those that this system has not. */
export function readMetrics() {
  const page = readFileSync('docs/metrics.md', 'utf8')
  const rows = page.matchAll(/^\| `(\w+)` \| (\w+) \| ([^|]*?) ?\| ([^|]+) \|$/gm)
  const here = [...rows].filter((row) => process.platform === 'linux' || !row[4]?.endsWith('; on Linux'))
  const labelsIn = (cell: string) => Array.from(cell.matchAll(/`(\w+)`/g), ([, label = '']) => label)
  return new Map(
    here.map(([, name = '', type = '', labels = '']) => [name, { type, labels: labelsIn(labels).sort() }]),
  )
}

function readPage(file: string) {
  const tree: Root = fromMarkdown(readFileSync(file))
  const slugger = new GithubSlugger()
  const page = {
    /** Its path from the repository's root. */
    file,
    /** Where its links and pictures lead, as written. */
    links: [] as string[],
    /** The names by which a link can lead to its headings, or to an element with an id. */
    anchors: [] as string[],
    /** The lines of its code blocks, with those put together that a backslash has divided. */
    lines: [] as string[],
    /** The code within its sentences and tables. */
    words: [] as string[],
  }
  visit(tree, (node: Nodes) => {
    if (node.type === 'link' || node.type === 'image' || node.type === 'definition') page.links.push(node.url)
    if (node.type === 'heading') page.anchors.push(slugger.slug(toText(node)))
    if (node.type === 'html') page.anchors.push(...(node.value.match(/(?<=id=").*?(?=")/g) ?? []))
    if (node.type === 'code') page.lines.push(...node.value.replaceAll('\\\n', ' ').split('\n'))
    if (node.type === 'inlineCode') page.words.push(node.value)
  })
  return page
}
