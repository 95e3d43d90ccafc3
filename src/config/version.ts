import { createRequire } from 'node:module'

const manifest: { version: string } = createRequire(import.meta.url)('#package/package.json')

/** The version of this software. */
export const { version } = manifest
