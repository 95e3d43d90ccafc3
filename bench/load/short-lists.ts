import type { Load } from './generator.ts'

/** The number of responses that cannot have been whole lists, from the bytes of all of them. */
export function shortLists({ work, listBytes }: Load, answers: number, bytes: number): number {
  return work === 'list' ? Math.max(0, Math.ceil(answers - bytes / listBytes)) : 0
}
