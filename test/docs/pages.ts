import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import GithubSlugger from 'github-slugger'
import type { Nodes, Root } from 'mdast'
import { fromMarkdown } from 'mdast-util-from-markdown'
import { toString as textOf } from 'mdast-util-to-string'
import { visit } from 'unist-util-visit'
import { root } from '../support/root.ts'

/** Where pages for people are, from the repository's root. */
const FOLDERS = ['.', 'docs', 'bench', 'examples', 'ops']

/** A page in Markdown. */
export interface Page {
  /** Its path from the repository's root. */
  readonly file: string
  /** Where its links and pictures lead, as written. */
  readonly links: readonly string[]
  /** The names by which a link can lead to its headings, or to an element with an id. */
  readonly anchors: readonly string[]
  /** The lines of its code blocks. */
  readonly lines: readonly string[]
  /** The code within its sentences and tables. */
  readonly words: readonly string[]
}

export async function readPages(): Promise<Page[]> {
  const pages: Page[] = []
  for (const folder of FOLDERS) {
    const names = await readdir(path.join(root, folder)).catch(() => [])
    for (const name of names.filter((name) => name.endsWith('.md'))) {
      const file = path.join(folder, name)
      pages.push(readPage(file, await readFile(path.join(root, file), 'utf8')))
    }
  }
  return pages
}

function readPage(file: string, text: string): Page {
  const tree: Root = fromMarkdown(text)
  const slugger = new GithubSlugger()
  const page = {
    file,
    links: [] as string[],
    anchors: [] as string[],
    lines: [] as string[],
    words: [] as string[],
  }
  visit(tree, (node: Nodes) => {
    if (node.type === 'link' || node.type === 'image' || node.type === 'definition') page.links.push(node.url)
    if (node.type === 'heading') page.anchors.push(slugger.slug(textOf(node)))
    if (node.type === 'html')
      page.anchors.push(...Array.from(node.value.matchAll(/id="(.*?)"/g), ([, id = '']) => id))
    if (node.type === 'code') page.lines.push(...joinLines(node.value))
    if (node.type === 'inlineCode') page.words.push(node.value)
  })
  return page
}

/** The lines of a block, with those put together that a backslash has divided. */
function joinLines(code: string): string[] {
  return code.replaceAll('\\\n', ' ').split('\n')
}
