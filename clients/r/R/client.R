# A client of a Sfumato server.  What is charged is asked under an Idempotency-Key, and asked again under the same one
# where nobody answered or the server was busy, so that a question is never charged twice.

ATTEMPTS <- 4
AGAIN <- c(429, 502, 503, 504)
LONGEST_WAIT <- 10 # seconds

#' A server at an address, asked with a key that a steward issued
sfumato_client <- function(address, key, timeout = 60) {
  if (!grepl("^https?://", address)) stop("an address of a server begins with http:// or https://")
  if (!grepl("^[\x21-\x7e]+$", key)) stop("a key is one word of printable ASCII; copy it again")
  structure(list(address = sub("/+$", "", address), key = key, timeout = timeout), class = "sfumato_client")
}

#' All datasets, with what is public about them
sfumato_datasets <- function(client) exchange(client, "GET", "/v1/datasets")$datasets

#' One dataset and its public domain, or the schema of its tables
sfumato_dataset <- function(client, name) exchange(client, "GET", dataset_path(name))

#' What is left of the budget
sfumato_budget <- function(client, name) exchange(client, "GET", dataset_path(name, "/budget"))

#' How wrong the answers would be at a loss, as a data frame; spends nothing
sfumato_accuracy <- function(client, name, sql, epsilon = NULL, delta = NULL, rho = NULL, confidence = NULL) {
  body <- stated(sql = sql, loss = loss(epsilon, delta, rho), confidence = confidence)
  found <- exchange(client, "POST", dataset_path(name, "/cost"), body)$expected
  parts <- c("name", "standard_error", "half_width", "measure")
  data.frame(lapply(stats::setNames(parts, parts), function(part) sapply(found, function(each) each[[part]])))
}

#' The epsilon that keeps every answer within an error, as text; spends nothing
sfumato_cost <- function(client, name, sql, error, confidence = NULL) {
  body <- stated(sql = sql, error = as_text(error), confidence = confidence)
  exchange(client, "POST", dataset_path(name, "/cost"), body)$epsilon
}

#' Answer a statement for a loss
sfumato_ask <- function(client, name, sql, epsilon = NULL, delta = NULL, rho = NULL, confidence = NULL, whole = NULL,
                        truncation = NULL, retry_key = new_retry_key()) {
  body <- stated(
    sql = sql, loss = loss(epsilon, delta, rho), confidence = confidence, whole = whole, truncation = truncation
  )
  found <- exchange(client, "POST", dataset_path(name, "/query"), body, retry_key)
  if (is.null(found$rows) || is.null(found$columns)) stop(foreign(200))
  answer <- list(
    rows = as_rows(found), guarantee = found$guarantee, cost = found$cost, confidence = found$confidence,
    remarks = unlist(found$remarks)
  )
  structure(answer, class = "sfumato_answer")
}

#' Ask for a synthetic table in the background; returns the id of the job
sfumato_release <- function(client, name, method, attributes = NULL, epsilon = NULL, delta = NULL, rho = NULL) {
  body <- stated(
    method = method, attributes = if (is.null(attributes)) NULL else as.list(attributes), loss = loss(epsilon, delta, rho)
  )
  exchange(client, "POST", dataset_path(name, "/releases"), body)$job
}

#' How far a job is
sfumato_progress <- function(client, job) exchange(client, "GET", job_path(job))

#' The rows of a finished job, as a data frame
sfumato_rows <- function(client, job) {
  reply <- sent(client, "GET", paste0(job_path(job), "/rows"))
  if (media(reply) != "text/csv") stop(foreign(httr2::resp_status(reply)))
  utils::read.csv(text = httr2::resp_body_string(reply, "UTF-8"), check.names = FALSE, stringsAsFactors = FALSE)
}

print.sfumato_answer <- function(x, ...) {
  print(x$rows, ...)
  cat("Cost:", x$cost, "\n")
  cat(x$guarantee, "\n")
  invisible(x)
}

as_rows <- function(found) {
  groups <- unlist(found$groups)
  labels <- lapply(seq_along(groups), function(place) {
    vapply(found$rows, function(row) as.character(row$key[[place]]), "")
  })
  names(labels) <- groups
  numbers <- list()
  endings <- c(estimate = "", standard_error = " error", low = " low", high = " high")
  for (place in seq_along(found$columns)) {
    for (part in names(endings)) {
      numbers[[paste0(found$columns[[place]], endings[[part]])]] <-
        vapply(found$rows, function(row) as.numeric(row$values[[place]][[part]]), 0)
    }
  }
  data.frame(c(labels, numbers), check.names = FALSE, stringsAsFactors = FALSE)
}

dataset_path <- function(name, ending = "") paste0("/v1/datasets/", utils::URLencode(name, reserved = TRUE), ending)
job_path <- function(job) paste0("/v1/releases/", utils::URLencode(job, reserved = TRUE))
new_retry_key <- function() paste(as.character(openssl::rand_bytes(16)), collapse = "")
as_text <- function(number) if (is.character(number)) number else format(number, digits = 15, scientific = FALSE)
stated <- function(...) Filter(Negate(is.null), list(...))
loss <- function(epsilon, delta, rho) lapply(stated(epsilon = epsilon, delta = delta, rho = rho), as_text)

exchange <- function(client, method, path, body = NULL, retry_key = NULL) {
  reply <- sent(client, method, path, body, retry_key)
  found <- if (media(reply) == "application/json") read_json(reply) else NULL
  if (!is.list(found)) stop(foreign(httr2::resp_status(reply)))
  found
}

# Send, and again where that is safe.
sent <- function(client, method, path, body = NULL, retry_key = NULL) {
  request <- httr2::request(paste0(client$address, path))
  request <- httr2::req_method(request, method)
  request <- httr2::req_headers(request, Authorization = paste("Bearer", client$key))
  request <- httr2::req_timeout(request, client$timeout)
  request <- httr2::req_error(request, is_error = function(reply) FALSE)
  if (!is.null(body)) request <- httr2::req_body_json(request, body, auto_unbox = TRUE, digits = NA)
  if (!is.null(retry_key)) request <- httr2::req_headers(request, `Idempotency-Key` = retry_key)
  safe <- !is.null(retry_key) || method == "GET" || endsWith(path, "/cost")
  for (attempt in seq_len(ATTEMPTS)) {
    last <- !safe || attempt == ATTEMPTS
    wait <- 0.1 * 2^(attempt - 1)
    reply <- tryCatch(httr2::req_perform(request), error = identity)
    if (inherits(reply, "error")) {
      if (last) {
        detail <- "check the address, and that the server runs and can be reached from here"
        stop(refusal(list(title = paste("no reply from", client$address), detail = detail, status = 0)))
      }
    } else {
      status <- httr2::resp_status(reply)
      if (status < 300) return(reply)
      if (last || !(status %in% AGAIN)) stop(refusal(problem(reply)))
      asked <- suppressWarnings(as.numeric(httr2::resp_header(reply, "retry-after")))
      if (length(asked) == 1 && !is.na(asked)) wait <- max(wait, min(asked, LONGEST_WAIT))
    }
    Sys.sleep(wait)
  }
}

# The media type of a reply; empty where it names none.
media <- function(reply) {
  found <- httr2::resp_header(reply, "content-type")
  if (is.null(found)) "" else tolower(trimws(sub(";.*", "", found)))
}

read_json <- function(reply) {
  text <- tryCatch(httr2::resp_body_string(reply, "UTF-8"), error = function(error) "")
  tryCatch(jsonlite::fromJSON(text, simplifyVector = FALSE), error = function(error) NULL)
}

problem <- function(reply) {
  found <- if (media(reply) == "application/problem+json") read_json(reply) else NULL
  status <- httr2::resp_status(reply)
  if (is.list(found)) found else list(title = "no problem document", detail = paste("status", status), status = status)
}

foreign <- function(status) {
  detail <- "another program answers there; check the address"
  refusal(list(title = "no reply of a Sfumato server", detail = detail, status = status))
}

refusal <- function(problem) {
  listed <- vapply(problem$errors, function(each) paste0(each$place, ": ", each$reason), "")
  said <- if (length(listed)) paste(listed, collapse = "; ") else problem$detail
  message <- paste0(problem$title, ": ", said)
  structure(list(message = message, call = NULL, problem = problem), class = c("sfumato_error", "error", "condition"))
}
