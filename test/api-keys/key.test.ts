import t from 'tap'
import { isApiKey, makeApiKey } from '../../src/api-keys/key.ts'

const digits = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

t.test('a key is a prefix, 43 random digits and a checksum, and never the same twice', async (t) => {
  const keys = Array.from({ length: 1000 }, makeApiKey)
  t.equal(new Set(keys).size, keys.length)
  for (const key of keys) {
    if (!/^inv_[A-Za-z0-9]{49}$/.test(key) || !isApiKey(key)) t.fail(key)
  }
  const first = new Set(keys.map((key) => key.charAt(4)))
  t.ok(first.size > 50, 'the highest digit is random as well')
})

t.test('a typing error is noticed wherever it is', async (t) => {
  const key = makeApiKey()
  for (let at = 0; at < key.length; at += 1) {
    for (const wrong of digits) {
      if (wrong === key.charAt(at)) continue
      if (isApiKey(key.slice(0, at) + wrong + key.slice(at + 1))) t.fail(`${wrong} at ${at} of ${key}`)
    }
  }
  for (const wrong of ['', 'inv_', key.slice(1), `${key}0`, ` ${key}`, `${key}\n`, key.toUpperCase()]) {
    t.notOk(isApiKey(wrong), wrong)
  }
})
