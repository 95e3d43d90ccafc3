/** The two operations, made with the defaults of Fastify and pg, as a baseline. */
import bearerAuth from '@fastify/bearer-auth'
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import { Type } from '@sinclair/typebox'
import fastify from 'fastify'
import pg from 'pg'

pg.types.setTypeParser(pg.types.builtins.INT8, BigInt)

const { DATABASE_URL, POOL_SIZE, API_KEY = '', PORT } = process.env
const pool = new pg.Pool({ connectionString: DATABASE_URL, max: Number(POOL_SIZE) })

const Item = Type.Object({
  petId: Type.Unsafe<bigint>({ type: 'integer' }),
  quantity: Type.Integer(),
  status: Type.String(),
})
const Path = Type.Object({ petId: Type.String({ pattern: '^-?\\d{1,19}$' }) })
const Update = Type.Object({ quantity: Type.Integer({ minimum: 0, maximum: 2_147_483_647 }) })

const app = fastify({ logger: true }).withTypeProvider<TypeBoxTypeProvider>()
await app.register(bearerAuth, { keys: [API_KEY] })

app.get('/v1/inventory', { schema: { response: { 200: Type.Array(Item) } } }, async () => {
  const { rows } = await pool.query(
    'SELECT pet_id AS "petId", quantity, status FROM inventory ORDER BY pet_id',
  )
  return rows
})

app.patch(
  '/v1/inventory/:petId',
  { schema: { params: Path, body: Update, response: { 200: Item } } },
  async (request, reply) => {
    const { rows } = await pool.query(
      'UPDATE inventory SET quantity = $2 WHERE pet_id = $1 RETURNING pet_id AS "petId", quantity, status',
      [request.params.petId, request.body.quantity],
    )
    return rows[0] ?? reply.callNotFound()
  },
)

await app.listen({ host: '127.0.0.1', port: Number(PORT) })
