import { constants } from 'node:fs'
import { access } from 'node:fs/promises'
import path from 'node:path'

/** A program of another project that a test starts. */
interface Need {
  readonly program: string
  /** How to get it, as a person would want to be told. */
  readonly from: string
}

const haproxy: Need = { program: 'haproxy', from: 'the package haproxy of Debian, version 2.4 or newer' }

/** What each test in this folder needs beside Node. */
const needs: Readonly<Record<string, readonly Need[]>> = {
  'rolling-restart.fault.ts': [haproxy],
}

/** What the tests need and this machine lacks, a line each. */
export async function missingFor(files: readonly string[]): Promise<string[]> {
  const missing: string[] = []
  for (const file of files) {
    for (const { program, from } of needs[file] ?? []) {
      if ((await pathOf(program)) === undefined) missing.push(`${file}: ${program} (${from})`)
    }
  }
  return missing
}

/** Where a program is, on PATH or where Debian puts servers; undefined where it is not. */
export async function pathOf(program: string): Promise<string | undefined> {
  const folders = [...(process.env['PATH'] ?? '').split(path.delimiter), '/usr/sbin', '/usr/local/sbin']
  for (const folder of folders) {
    const file = path.join(folder, program)
    const found = await access(file, constants.X_OK).then(
      () => true,
      () => false,
    )
    if (found) return file
  }
  return undefined
}
