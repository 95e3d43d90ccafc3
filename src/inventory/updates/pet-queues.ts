import { ok as assert } from 'node:assert'
import { TransientMap } from '../../collections/transient-map.ts'
import type { Update } from './quantity-update.ts'

/** Why the next update of a pet is sent individually: the row was locked, the last update was slow, or the next one has no outcome. */
export type Trouble = 'locked' | 'slow' | 'undecided'

interface Pet {
  /** Oldest first. */
  queued: Update[]
  inFlight: Update | undefined
  trouble: Trouble | undefined
}

/**
 * The order of the updates of each pet. They are QUEUED until one is IN FLIGHT, which includes that it is sent again in a batch. The
 * others wait for it, so none overtakes an older one of its key.
 */
export class PetQueues {
  /** First the pet that was served longest ago. */
  readonly #pets = new TransientMap<bigint, Pet>()
  /** Number of queued updates. */
  size = 0

  get isEmpty(): boolean {
    return this.#pets.size === 0
  }

  add(update: Update): void {
    const pet = this.#pets.get(update.petId)
    if (pet) pet.queued.push(update)
    else this.#pets.set(update.petId, { queued: [update], inFlight: undefined, trouble: undefined })
    this.size++
  }

  /** Moves the oldest update for which `fits` is true, of each of at most `limit` pets, into flight. */
  take(limit: number, fits: (update: Update, trouble: Trouble | undefined) => boolean): Update[] {
    const taken: Update[] = []
    for (const [, pet] of this.#pets) {
      if (taken.length === limit || this.size === 0) break
      const next = pet.inFlight ? undefined : pet.queued.find((update) => fits(update, pet.trouble))
      if (next === undefined) continue
      pet.queued.splice(pet.queued.indexOf(next), 1)
      pet.inFlight = next
      taken.push(next)
      this.size--
    }
    return taken
  }

  /** An update in flight has its outcome. */
  settle(update: Update, trouble?: Trouble): void {
    const pet = this.#pets.get(update.petId)
    assert(pet?.inFlight === update, 'only an update in flight is settled')
    pet.inFlight = undefined
    pet.trouble = trouble
    this.#pets.delete(update.petId)
    if (pet.queued.length > 0) this.#pets.set(update.petId, pet)
  }

  /** An update in flight has no outcome: it is the next one of its pet. */
  requeue(update: Update, trouble: Trouble): void {
    const pet = this.#pets.get(update.petId)
    assert(pet?.inFlight === update, 'only an update in flight is queued again')
    pet.queued.unshift(update)
    this.size++
    this.settle(update, trouble)
  }

  /** Removes the queued updates that arrived before `time`, and calls `onLate` with each. */
  removeLate(time: number, onLate: (update: Update, trouble: Trouble | undefined) => void): void {
    for (const [petId, pet] of Array.from(this.#pets)) {
      const late = pet.queued.filter(({ arrivedAt }) => arrivedAt < time)
      if (late.length === 0) continue
      pet.queued = pet.queued.filter((update) => !late.includes(update))
      this.size -= late.length
      for (const update of late) onLate(update, pet.trouble)
      if (pet.queued.length === 0 && !pet.inFlight) this.#pets.delete(petId)
    }
  }
}
