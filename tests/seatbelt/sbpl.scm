;; A small interpreter of Apple's sandbox profile language, for tests: which rule of a profile
;; decides about an operation. The language is Scheme, so Scheme reads it; the words that Apple adds
;; are defined here. An operation or a word that is not known here is an error, as it is on a Mac:
;; a profile with a misspelt operation must not pass.
;;
;;   guile --no-auto-compile sbpl.scm PROFILE NAME=VALUE... <questions
;;
;; A question is one line: OPERATION TAB KIND TAB VALUE; the answer is "allow" or "deny".

(use-modules (ice-9 rdelim) (ice-9 regex) (srfi srfi-1) (srfi srfi-11))

(define operations
  '(default
    appleevent-send dynamic-code-generation
    file-chroot file-clone file-ioctl file-link file-map-executable file-mknod file-mount
    file-read-data file-read-metadata file-read-xattr file-revoke
    file-search file-test-existence file-unmount
    file-write-acl file-write-create file-write-data file-write-flags file-write-mode
    file-write-owner file-write-setugid file-write-times file-write-unlink file-write-xattr
    iokit-open ipc-posix-sem ipc-posix-shm-read-data ipc-posix-shm-write-create
    ipc-posix-shm-write-data job-creation
    mach-lookup mach-priv-task-port mach-register
    network-bind network-inbound network-outbound
    process-exec process-fork process-info-listpids process-info-pidinfo process-info-setcontrol
    pseudo-tty signal sysctl-read sysctl-write system-socket user-preference-read
    user-preference-write))

;; "file-read*" stands for every operation that begins so; "default" for all.
(define (operation-covers? pattern operation)
  (let ((text (symbol->string pattern)))
    (cond ((eq? pattern 'default) #t)
          ((string-suffix? "*" text)
           (string-prefix? (substring text 0 (- (string-length text) 1))
                           (symbol->string operation)))
          (else (eq? pattern operation)))))

(define (check-operation pattern)
  (unless (any (lambda (known) (operation-covers? pattern known)) operations)
    (error "unknown operation" pattern)))

;; ---- what a question is about: an association list such as ((path . "/x")) ----

(define (about question key) (assq-ref question key))

;; ---- filters: procedures from a question to true or false ----

(define (literal path)
  (lambda (question) (equal? (about question 'path) path)))

(define (subpath folder)
  (let ((below (if (string=? folder "/") "/" (string-append folder "/"))))
    (lambda (question)
      (let ((path (about question 'path)))
        (and path (or (string=? path folder) (string-prefix? below path)))))))

(define (path-literal path)
  (lambda (question) (equal? (about question 'socket) path)))

(define (regex expression)
  (let ((compiled (make-regexp expression regexp/extended)))
    (lambda (question)
      (let ((path (about question 'path)))
        (and path (regexp-exec compiled path) #t)))))

(define (require-all . filters)
  (lambda (question) (every (lambda (filter) (filter question)) filters)))
(define (require-any . filters)
  (lambda (question) (any (lambda (filter) (filter question)) filters)))
(define (require-not filter)
  (lambda (question) (not (filter question))))

(define (global-name name)
  (lambda (question) (equal? (about question 'service) name)))
(define (ipc-posix-name name)
  (lambda (question) (equal? (about question 'shared) name)))

;; Addresses are only "localhost" or "*"; the kernel knows no other.
(define (check-address pattern)
  (unless (member (car (string-split pattern #\:)) '("localhost" "*"))
    (error "an address must be localhost or *" pattern)))
(define (address-matches pattern address)
  (let ((wanted (string-split pattern #\:)) (given (string-split address #\:)))
    (every (lambda (want have) (or (string=? want "*") (string=? want have))) wanted given)))

;; The symbols ip, unix-socket, self, others, same-sandbox are words of the language.
(define ip 'ip)
(define unix-socket 'unix-socket)
(define (endpoint key)
  (lambda (kind . rest)
    (cond ((and (eq? kind 'ip) (= (length rest) 1))
           (check-address (car rest))
           (lambda (question)
             (let ((address (about question key)))
               (and address (address-matches (car rest) address)))))
          ((eq? kind 'unix-socket)
           (lambda (question)
             (and (about question 'socket)
                  (or (null? rest) ((car rest) question)))))
          (else (error "not an endpoint" kind rest)))))
(define remote (endpoint 'remote))
(define local (endpoint 'local))

(define self 'self)
(define others 'others)
(define same-sandbox 'same-sandbox)
(define (target whom)
  (lambda (question)
    (let ((of (about question 'target)))
      (case whom
        ((self) (eq? of 'self))
        ((same-sandbox) (memq of '(self same-sandbox)))
        ((others) (eq? of 'others))
        (else (error "not a target" whom))))))

;; ---- rules: the last one that matches decides ----

(define rules '())
(define (add-rule! action words)
  (let-values (((named filters) (partition symbol? words)))
    (for-each check-operation named)
    (when (null? named) (error "a rule without an operation" words))
    (unless (every procedure? filters) (error "not a filter" filters))
    (set! rules (cons (list action named filters) rules))))

(define-syntax rule
  (syntax-rules ()
    ((_ action word ...) (add-rule! action (list (quoted word) ...)))))
;; The operations of a rule are not quoted in the language; filters are expressions or names.
(define-syntax quoted
  (lambda (form)
    (syntax-case form ()
      ((_ word)
       (if (and (identifier? #'word)
                (let ((name (syntax->datum #'word)))
                  (not (module-defined? (current-module) name))))
           #'(quote word)
           #'word)))))
(define-syntax allow (syntax-rules () ((_ word ...) (rule 'allow word ...))))
(define-syntax deny (syntax-rules () ((_ word ...) (rule 'deny word ...))))

(define the-version #f)
(define (version number)
  (unless (= number 1) (error "unknown version" number))
  (set! the-version number))

(define parameters '())
(define (param name)
  (or (assoc-ref parameters name) (error "no such parameter" name)))

(define (matches? rule operation question)
  (and (any (lambda (pattern) (operation-covers? pattern operation)) (cadr rule))
       (or (null? (caddr rule))
           (any (lambda (filter) (filter question)) (caddr rule)))))

(define (decide operation question)
  (let ((found (find (lambda (rule) (matches? rule operation question)) rules)))
    (if found (car found) (error "the profile has no default"))))

;; ---- the program ----

(define (read-profile file)
  (call-with-input-file file
    (lambda (port)
      (let loop ((form (read port)))
        (unless (eof-object? form)
          (eval form (current-module))
          (loop (read port)))))))

(define (parse-question line)
  (let* ((words (string-split line #\tab)) (operation (string->symbol (car words))))
    (unless (memq operation operations) (error "unknown operation asked" operation))
    (let ((key (if (> (length words) 2) (string->symbol (cadr words)) #f)))
      (values operation
              (if key
                  (list (cons key (if (eq? key 'target)
                                      (string->symbol (caddr words))
                                      (caddr words))))
                  '())))))

(setlocale LC_ALL "C.UTF-8")
(let ((words (cdr (command-line))))
  (set! parameters
        (map (lambda (word)
               (let ((at (string-index word #\=)))
                 (cons (substring word 0 at) (substring word (+ at 1)))))
             (cdr words)))
  (read-profile (car words))
  (unless the-version (error "the version is missing"))
  (let loop ((line (read-line)))
    (unless (eof-object? line)
      (let-values (((operation question) (parse-question line)))
        (display (decide operation question))
        (newline))
      (loop (read-line)))))
