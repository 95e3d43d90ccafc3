/** The server. Imports the rest only when Node is known to be able to load it. */
import { requireSupportedNode } from './process/node-version.js'

requireSupportedNode()
await import('./run-server.ts')
