import { setFlagsFromString } from 'node:v8'

/**
 * Makes V8 allocate all short-lived objects in the young generation. By default, V8 allocates the objects of a line of code
 * in the old generation once nearly all of them have survived a collection, which a burst of requests causes, as all its
 * requests are in flight at that moment. From then on, these objects keep most of what each request allocates, some 4 kB,
 * until a full collection.
 */
export function disablePretenuring(): void {
  setFlagsFromString('--no-allocation-site-pretenuring')
}

/**
 * Keeps V8 from collecting garbage for the only reason that the process is idle. As no request is in flight then, V8 would free
 * the hidden classes of the objects that requests use, and with them the optimized code that depends on these classes. Until
 * V8 has compiled it again, requests take twice the CPU time. Call it before V8's first full collection.
 */
export function disableIdleCollections(): void {
  // The delay of the first one, 24 days. The flag that turns them off has no effect after the process has started.
  setFlagsFromString('--gc-memory-reducer-start-delay-ms=2147483647')
}
