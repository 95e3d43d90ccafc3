import { type Case, type ContenderName, contenderNames } from './cases.ts'
import { median, ratio, type Sample } from './statistics.ts'

/** The samples of all contenders in all cases, round by round. */
export class Results {
  readonly #samples = new Map<string, Sample[]>()
  readonly #failures: string[] = []

  /** The cases to measure, in order. */
  readonly cases: readonly Case[]

  constructor(cases: readonly Case[]) {
    this.cases = cases
  }

  add(given: Case, contender: ContenderName, sample: Sample): void {
    this.#samples.set(`${given.name} ${contender}`, [...this.of(given.name, contender), sample])
  }

  /** Returns the samples of a contender in a case, one per round in order. Empty if it was not measured. */
  of(caseName: string, contender: ContenderName): readonly Sample[] {
    return this.#samples.get(`${caseName} ${contender}`) ?? []
  }

  /** Returns the median of one value over all rounds. */
  median(caseName: string, contender: ContenderName, value: keyof Sample): number {
    return median(this.of(caseName, contender).map((sample) => sample[value] ?? Number.NaN))
  }

  /** Returns the ratio of a value between two contenders, or NaN if one of them was not measured. */
  ratio(
    caseName: string,
    contender: ContenderName,
    against: ContenderName,
    value: 'perSecond' | 'p50',
  ): number {
    return ratio(this.of(caseName, contender), this.of(caseName, against), value)
  }

  /** Returns the number of a contender's failed responses in a case. */
  errors(caseName: string, contender: ContenderName): number {
    return this.of(caseName, contender).reduce((sum, { errors }) => sum + errors, 0)
  }

  /** Records that a contender could not be measured in a case, and why. */
  addFailure(given: Case, contender: ContenderName, reason: string): void {
    this.#failures.push(`${given.name}: ${contenderNames[contender]}: ${reason}`)
  }

  /** Returns reasons to repeat the run: contenders that could not be measured, and failed responses of the service. */
  failures(): string[] {
    const failed = this.cases.flatMap((given) =>
      given.contenders
        .filter((contender) => contender.startsWith('service') && this.errors(given.name, contender) > 0)
        .map(
          (contender) =>
            `${given.name}: ${contenderNames[contender]} failed ${this.errors(given.name, contender)} times`,
        ),
    )
    return [...this.#failures, ...failed]
  }
}
