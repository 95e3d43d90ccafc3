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

type apiError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Status  int    `json:"status"`
}

func main() {
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	size, err := strconv.ParseInt(os.Getenv("POOL_SIZE"), 10, 32)
	if err != nil {
		log.Fatal(err)
	}
	config.MaxConns = int32(size)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		log.Fatal(err)
	}

	routes := http.NewServeMux()
	routes.HandleFunc("GET /v1/inventory", func(w http.ResponseWriter, r *http.Request) { list(pool, w, r) })
	routes.HandleFunc("PATCH /v1/inventory/{petId}", func(w http.ResponseWriter, r *http.Request) { update(pool, w, r) })
	address := "127.0.0.1:" + os.Getenv("PORT")
	log.Fatal(http.ListenAndServe(address, requireKey(os.Getenv("API_KEY"), routes)))
}

func requireKey(key string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(key))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(given))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			fail(w, http.StatusUnauthorized, "unauthorized", "The API key is missing or invalid.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func list(pool *pgxpool.Pool, w http.ResponseWriter, r *http.Request) {
	rows, err := pool.Query(r.Context(), listEntries)
	if err != nil {
		unavailable(w, err)
		return
	}
	items, err := pgx.CollectRows(rows, pgx.RowToStructByPos[item])
	if err != nil {
		unavailable(w, err)
		return
	}
	send(w, http.StatusOK, items)
}

func update(pool *pgxpool.Pool, w http.ResponseWriter, r *http.Request) {
	petID, err := strconv.ParseInt(r.PathValue("petId"), 10, 64)
	if err != nil {
		fail(w, http.StatusBadRequest, "invalid_request", "petId must be an int64.")
		return
	}
	var body struct {
		Quantity *int64 `json:"quantity"`
	}
	err = json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBodyBytes)).Decode(&body)
	if err != nil || body.Quantity == nil || *body.Quantity < 0 || *body.Quantity > maxQuantity {
		fail(w, http.StatusBadRequest, "invalid_request", "quantity must be an integer from 0 to 2147483647.")
		return
	}
	var entry item
	err = pool.QueryRow(r.Context(), updateEntry, petID, *body.Quantity).Scan(&entry.PetID, &entry.Quantity, &entry.Status)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		fail(w, http.StatusNotFound, "not_found", "No inventory entry exists for this petId.")
	case err != nil:
		unavailable(w, err)
	default:
		send(w, http.StatusOK, entry)
	}
}

func unavailable(w http.ResponseWriter, err error) {
	if !errors.Is(err, context.Canceled) {
		log.Print(err)
	}
	fail(w, http.StatusServiceUnavailable, "service_unavailable", "The database cannot be used.")
}

func fail(w http.ResponseWriter, status int, code, message string) {
	send(w, status, apiError{Code: code, Message: message, Status: status})
}

func send(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		log.Print(err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(text); err != nil {
		log.Print(err)
	}
}
