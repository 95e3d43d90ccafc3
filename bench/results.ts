import { type Case, type ContenderName, contenderNames } from './cases.ts'
import { median, ratio, type Sample } from './statistics.ts'

/** What all contenders of all cases did, round by round. */
export class Results {
  readonly #samples = new Map<string, Sample[]>()
  readonly #failures: string[] = []

  /** The cases that are to be measured, in their order. */
  readonly cases: readonly Case[]

  constructor(cases: readonly Case[]) {
    this.cases = cases
  }

  add(given: Case, contender: ContenderName, sample: Sample): void {
    this.#samples.set(`${given.name} ${contender}`, [...this.of(given.name, contender), sample])
  }

  /** The samples of a contender in a case, the first round first; none where it was not measured. */
  of(caseName: string, contender: ContenderName): readonly Sample[] {
    return this.#samples.get(`${caseName} ${contender}`) ?? []
  }

  /** The median of one value over the rounds. */
  median(caseName: string, contender: ContenderName, value: keyof Sample): number {
    return median(this.of(caseName, contender).map((sample) => sample[value]))
  }

  /** How many times as much of something a contender has as another one; NaN where one of them was not measured. */
  ratio(
    caseName: string,
    contender: ContenderName,
    against: ContenderName,
    value: 'perSecond' | 'p50',
  ): number {
    return ratio(this.of(caseName, contender), this.of(caseName, against), value)
  }

  /** How many of a contender's answers failed in a case. */
  errors(caseName: string, contender: ContenderName): number {
    return this.of(caseName, contender).reduce((sum, { errors }) => sum + errors, 0)
  }

  /** Says that a contender could not be measured in a case, and why. */
  addFailure(given: Case, contender: ContenderName, reason: string): void {
    this.#failures.push(`${given.name}: ${contenderNames[contender]}: ${reason}`)
  }

  /** What makes the run one to be repeated: who could not be measured, and where the service failed its callers. */
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
