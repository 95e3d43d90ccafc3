export interface paths {
    "/inventory": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List inventory
         * @description Returns current stock levels for all pets in the store, in ascending order of petId.
         */
        get: operations["listInventory"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/inventory/{petId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        /**
         * Update stock level
         * @description Sets the stock quantity of one pet; its status stays as it is. Repeating a request does no harm.
         *
         *     Experimental: the request shape may change before it becomes stable. Unknown fields are ignored.
         */
        patch: operations["updateInventory"];
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description Body of every error response */
        Error: {
            /** @description Machine-readable error code. Known codes: invalid_request, unauthorized, not_found, method_not_allowed, request_timeout, payload_too_large, unsupported_media_type, uri_too_long, headers_too_large, internal_error, service_unavailable. Codes may be added; treat an unknown one by its status. */
            code: string;
            /** @description Human-readable description */
            message: string;
            /** @description The HTTP status code of the response */
            status: number;
        };
        /**
         * @description Status of the pet
         * @enum {string}
         */
        PetStatus: "available" | "pending" | "sold";
        /**
         * @description The stock of one pet
         * @example {
         *       "petId": 1,
         *       "quantity": 20,
         *       "status": "available"
         *     }
         */
        InventoryItem: {
            /**
             * Format: int64
             * @description Identifier of the animal this entry tracks. JSON.parse of JavaScript rounds it above 2^53.
             */
            petId: bigint;
            /** @description Current stock count */
            quantity: number;
            status: components["schemas"]["PetStatus"];
        };
        /**
         * @description The new stock of one pet
         * @example {
         *       "quantity": 20
         *     }
         */
        InventoryUpdate: {
            /** @description The new stock count */
            quantity: number;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    listInventory: {
        parameters: {
            query?: never;
            header?: {
                /** @description The ETag of a list, or several; if the list is still one of them, the answer is 304 */
                "If-None-Match"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The stock levels */
            200: {
                headers: {
                    /** @description Identifies this state of the list; for If-None-Match */
                    ETag?: string;
                    /** @description The content coding, chosen from Accept-Encoding; absent if there is none */
                    "Content-Encoding"?: string;
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example [
                     *       {
                     *         "petId": 1,
                     *         "quantity": 20,
                     *         "status": "available"
                     *       },
                     *       {
                     *         "petId": 2,
                     *         "quantity": 0,
                     *         "status": "sold"
                     *       }
                     *     ]
                     */
                    "application/json": components["schemas"]["InventoryItem"][];
                };
            };
            /** @description The list has not changed since the one that If-None-Match names */
            304: {
                headers: {
                    /** @description Identifies this state of the list; for If-None-Match */
                    ETag?: string;
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description The request is malformed, or a value in it is missing or invalid */
            400: {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "invalid_request",
                     *       "message": "The request must have exactly one Host header.",
                     *       "status": 400
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description API key missing or invalid */
            401: {
                headers: {
                    /** @description How to authenticate (RFC 6750) */
                    "WWW-Authenticate"?: string;
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "unauthorized",
                     *       "message": "The API key is missing or invalid. Send it in the header Authorization: Bearer <API key>.",
                     *       "status": 401
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description The request did not arrive in time */
            408: {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "request_timeout",
                     *       "message": "The request did not arrive in time.",
                     *       "status": 408
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description An expectation other than 100-continue */
            417: {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "invalid_request",
                     *       "message": "The only expectation that can be met is 100-continue.",
                     *       "status": 417
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description The request line and headers are too large */
            431: {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "headers_too_large",
                     *       "message": "The request line and headers are too large; at most 16384 bytes are accepted.",
                     *       "status": 431
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description The service failed */
            500: {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "internal_error",
                     *       "message": "The service failed. Its log has the details under the X-Request-Id of this response.",
                     *       "status": 500
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description The service cannot answer now; the same request may succeed later */
            503: {
                headers: {
                    /** @description Seconds to wait before the next try */
                    "Retry-After"?: number;
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "service_unavailable",
                     *       "message": "The database cannot be reached or is too busy. Try again shortly.",
                     *       "status": 503
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description Any other error of the request */
            "4XX": {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "invalid_request",
                     *       "message": "The request is invalid.",
                     *       "status": 400
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description Any other failure of the service */
            "5XX": {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "internal_error",
                     *       "message": "The service failed. Its log has the details under the X-Request-Id of this response.",
                     *       "status": 500
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    updateInventory: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Identifier of the pet whose stock is updated */
                petId: bigint;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["InventoryUpdate"];
            };
        };
        responses: {
            /** @description The updated entry */
            200: {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "petId": 1,
                     *       "quantity": 20,
                     *       "status": "available"
                     *     }
                     */
                    "application/json": components["schemas"]["InventoryItem"];
                };
            };
            /** @description The request is malformed, or a value in it is missing or invalid */
            400: {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "invalid_request",
                     *       "message": "The body must have the field quantity: an integer from 0 to 2147483647, as a JSON number.",
                     *       "status": 400
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description API key missing or invalid */
            401: {
                headers: {
                    /** @description How to authenticate (RFC 6750) */
                    "WWW-Authenticate"?: string;
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "unauthorized",
                     *       "message": "The API key is missing or invalid. Send it in the header Authorization: Bearer <API key>.",
                     *       "status": 401
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description No entry exists for this petId */
            404: {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "not_found",
                     *       "message": "No inventory entry exists for petId 6.",
                     *       "status": 404
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description The request did not arrive in time */
            408: {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "request_timeout",
                     *       "message": "The request did not arrive in time.",
                     *       "status": 408
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description The body is too large */
            413: {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "payload_too_large",
                     *       "message": "The body is too large; at most 4096 bytes are accepted.",
                     *       "status": 413
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description The path is too long */
            414: {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "uri_too_long",
                     *       "message": "petId in the path is too long.",
                     *       "status": 414
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description The body is not application/json in UTF-8 */
            415: {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "unsupported_media_type",
                     *       "message": "The body must be application/json.",
                     *       "status": 415
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description An expectation other than 100-continue */
            417: {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "invalid_request",
                     *       "message": "The only expectation that can be met is 100-continue.",
                     *       "status": 417
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description The request line and headers are too large */
            431: {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "headers_too_large",
                     *       "message": "The request line and headers are too large; at most 16384 bytes are accepted.",
                     *       "status": 431
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description The service failed */
            500: {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "internal_error",
                     *       "message": "The service failed. Its log has the details under the X-Request-Id of this response.",
                     *       "status": 500
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description The service cannot answer now; the same request may succeed later */
            503: {
                headers: {
                    /** @description Seconds to wait before the next try */
                    "Retry-After"?: number;
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "service_unavailable",
                     *       "message": "The database cannot be reached or is too busy. Try again shortly.",
                     *       "status": 503
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description Any other error of the request */
            "4XX": {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "invalid_request",
                     *       "message": "The request is invalid.",
                     *       "status": 400
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
            /** @description Any other failure of the service */
            "5XX": {
                headers: {
                    /** @description Identifies the request in the log of the service */
                    "X-Request-Id"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "code": "internal_error",
                     *       "message": "The service failed. Its log has the details under the X-Request-Id of this response.",
                     *       "status": 500
                     *     }
                     */
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
}
