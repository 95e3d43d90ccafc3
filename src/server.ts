#!/usr/bin/env node
import { disableIdleCollections, disablePretenuring } from './process/garbage-collection.ts'

disablePretenuring()
disableIdleCollections()
// Not a static import: loading the other modules makes V8 collect garbage, and that schedules the first idle collection.
await import('./start.ts')
