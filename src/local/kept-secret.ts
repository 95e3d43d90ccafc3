import { readFile, rename, writeFile } from 'node:fs/promises'

/**
 * The secret in a file that only its owner can read, made at the first call. An empty file, as a full disk leaves it,
 * counts as none.
 */
export async function keptSecret(file: string, make: () => string): Promise<string> {
  const kept = (await readFile(file, 'utf8').catch(() => '')).trim()
  if (kept !== '') return kept
  const secret = make()
  // By way of another name: the file is never there with a part of the secret in it.
  await writeFile(`${file}.new`, `${secret}\n`, { mode: 0o600 })
  await rename(`${file}.new`, file)
  return secret
}
