/** What a process is asked for, by its name; the answer is a text or nothing. */
export type RequestHandlers = Readonly<Record<string, () => Promise<string | undefined>>>

interface Request {
  readonly request: string
  readonly id: number
}

interface Reply {
  readonly replyTo: number
  readonly value: string | null
}

interface PendingReply {
  readonly resolve: (value: string | undefined) => void
  readonly reject: (error: Error) => void
}

/** Requests and replies between the primary and one worker, in both directions, over the messages of `node:cluster`. */
export class ProcessRequests {
  readonly #pending = new Map<number, PendingReply>()
  readonly #send: (message: object) => void
  readonly #handlers: RequestHandlers
  #newest = 0

  /** @param send has nothing to report where the other process is gone */
  constructor(send: (message: object) => void, handlers: RequestHandlers) {
    this.#send = send
    this.#handlers = handlers
  }

  /**
   * Sends a request and resolves with its reply.
   *
   * @throws {Error} when the other process ends or does not reply within `limitMs` milliseconds
   */
  ask(request: string, limitMs: number): Promise<string | undefined> {
    const id = ++this.#newest
    return new Promise<string | undefined>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`no reply to "${request}"`)), limitMs)
      this.#pending.set(id, {
        resolve(value) {
          clearTimeout(timer)
          resolve(value)
        },
        reject(error) {
          clearTimeout(timer)
          reject(error)
        },
      })
      this.#send({ request, id } satisfies Request)
    }).finally(() => this.#pending.delete(id))
  }

  /** Handles a message from the other process; those of others are left alone. */
  receive(message: unknown): void {
    if (isReply(message)) this.#pending.get(message.replyTo)?.resolve(message.value ?? undefined)
    if (!isRequest(message)) return
    const handler = this.#handlers[message.request]
    void handler?.().then((value) => {
      this.#send({ replyTo: message.id, value: value ?? null } satisfies Reply)
    })
  }

  /** Rejects all pending requests, because the other process has ended. */
  end(): void {
    for (const { reject } of this.#pending.values()) reject(new Error('the other process has ended'))
  }
}

function isRequest(message: unknown): message is Request {
  return typeof message === 'object' && message !== null && 'request' in message && 'id' in message
}

function isReply(message: unknown): message is Reply {
  return typeof message === 'object' && message !== null && 'replyTo' in message && 'value' in message
}
