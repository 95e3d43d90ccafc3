// The two operations as net/http and pgx make them with their defaults: a peer beyond Node.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	maxBodyBytes = 4096
	maxQuantity  = 1<<31 - 1
	listEntries  = "SELECT pet_id, quantity, status FROM inventory ORDER BY pet_id"
	updateEntry  = "UPDATE inventory SET quantity = $2 WHERE pet_id = $1 RETURNING pet_id, quantity, status"
)

type item struct {
	PetID    int64  `json:"petId"`
	Quantity int32  `json:"quantity"`
	Status   string `json:"status"`
}

func main() {
	address := os.Getenv("DATABASE_URL") + "&pool_max_conns=" + os.Getenv("POOL_SIZE")
	pool, err := pgxpool.New(context.Background(), address)
	if err != nil {
		log.Fatal(err)
	}

	routes := http.NewServeMux()
	routes.HandleFunc("GET /v1/inventory", func(w http.ResponseWriter, r *http.Request) { list(pool, w, r) })
	routes.HandleFunc("PATCH /v1/inventory/{petId}", func(w http.ResponseWriter, r *http.Request) { update(pool, w, r) })
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), requireKey(os.Getenv("API_KEY"), routes)))
}

func requireKey(key string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(key))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(given))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			fail(w, http.StatusUnauthorized, "unauthorized")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func list(pool *pgxpool.Pool, w http.ResponseWriter, r *http.Request) {
	rows, err := pool.Query(r.Context(), listEntries)
	if err == nil {
		var items []item
		if items, err = pgx.CollectRows(rows, pgx.RowToStructByPos[item]); err == nil {
			send(w, http.StatusOK, items)
			return
		}
	}
	fail(w, http.StatusServiceUnavailable, "service_unavailable")
}

func update(pool *pgxpool.Pool, w http.ResponseWriter, r *http.Request) {
	petID, err := strconv.ParseInt(r.PathValue("petId"), 10, 64)
	if err != nil {
		fail(w, http.StatusBadRequest, "invalid_request")
		return
	}
	var body struct {
		Quantity *int64 `json:"quantity"`
	}
	err = json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBodyBytes)).Decode(&body)
	if err != nil || body.Quantity == nil || *body.Quantity < 0 || *body.Quantity > maxQuantity {
		fail(w, http.StatusBadRequest, "invalid_request")
		return
	}
	var entry item
	err = pool.QueryRow(r.Context(), updateEntry, petID, *body.Quantity).Scan(&entry.PetID, &entry.Quantity, &entry.Status)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		fail(w, http.StatusNotFound, "not_found")
	case err != nil:
		fail(w, http.StatusServiceUnavailable, "service_unavailable")
	default:
		send(w, http.StatusOK, entry)
	}
}

func fail(w http.ResponseWriter, status int, code string) {
	send(w, status, map[string]any{"code": code, "message": code, "status": status})
}

func send(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	text, _ := json.Marshal(body)
	w.WriteHeader(status)
	w.Write(text)
}
