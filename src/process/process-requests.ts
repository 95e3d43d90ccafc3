/** Handlers by request name. The value of a reply is a text, or undefined. */
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

/** Exchanges requests and replies between the primary and a worker, in both directions, over `node:cluster` messages. */
export class ProcessRequests {
  readonly #pending = new Map<number, PendingReply>()
  readonly #send: (message: object) => void
  readonly #handlers: RequestHandlers
  #lastId = 0

  /** @param send must not throw if the other process has exited */
  constructor(send: (message: object) => void, handlers: RequestHandlers) {
    this.#send = send
    this.#handlers = handlers
  }

  /**
   * Sends a request and resolves with its reply.
   *
   * @throws {Error} if the other process exits or does not reply in time
   */
  ask(request: string, timeoutMs: number): Promise<string | undefined> {
    const id = ++this.#lastId
    return new Promise<string | undefined>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`no reply to "${request}"`)), timeoutMs)
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

  /** Handles a message from the other process. Ignores messages of other kinds. */
  receive(message: unknown): void {
    if (isReply(message)) this.#pending.get(message.replyTo)?.resolve(message.value ?? undefined)
    if (!isRequest(message)) return
    const handler = this.#handlers[message.request]
    void handler?.().then((value) => {
      this.#send({ replyTo: message.id, value: value ?? null } satisfies Reply)
    })
  }

  /** Rejects the pending requests, because the other process has exited. */
  end(): void {
    for (const { reject } of this.#pending.values()) reject(new Error('the other process has exited'))
  }
}

function isRequest(message: unknown): message is Request {
  return typeof message === 'object' && message !== null && 'request' in message && 'id' in message
}

function isReply(message: unknown): message is Reply {
  return typeof message === 'object' && message !== null && 'replyTo' in message && 'value' in message
}
