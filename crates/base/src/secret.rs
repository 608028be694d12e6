//! Which values are secrets, judged by their names and by forms that only secrets have.

/// Words that make a name that of a secret, whatever its value.
const STRONG: [&str; 19] = [
    "APIKEY",
    "APIKEYS",
    "BEARER",
    "COOKIE",
    "CREDENTIAL",
    "CREDENTIALS",
    "JWT",
    "PASSCODE",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "PASSWORDS",
    "PAT",
    "PW",
    "PWD",
    "SAS",
    "SECRET",
    "SECRETS",
    "SIGNATURE",
];

/// Words that are in the names of secrets, and of columns and of words of a language: `sort_key`, `pad_token`.
const WEAK: [&str; 6] = ["AUTH", "KEY", "KEYS", "PASS", "TOKEN", "TOKENS"];

/// What makes `KEY` and `TOKEN`, which follow, words of secrets only.
const BEFORE_KEY: [&str; 3] = ["ACCESS", "API", "PRIVATE"];

/// The most letters of a plain word. Passwords of letters of one case may be as short; tokens are longer.
const LONGEST_WORD: usize = 16;

/// The least length of a value after a weak word within a longer text, where more is said that is no secret.
const SHORTEST_WITHIN: usize = 8;

/// How tokens of well-known services begin, and how many letters, digits, `_` and `-` follow at least.
const TOKENS: [(&str, usize); 20] = [
    ("AKIA", 16),
    ("ASIA", 16),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghs_", 20),
    ("github_pat_", 20),
    ("glpat-", 20),
    ("hf_", 30),
    ("sk-", 32),
    ("sk_live_", 16),
    ("xoxb-", 20),
    ("xoxp-", 20),
    ("xapp-", 20),
    ("AIza", 35),
    ("ya29.", 20),
    ("SG.", 20),
    ("npm_", 30),
    ("pypi-", 30),
    ("dckr_pat_", 20),
    // A JSON web token: {" in Base64.
    ("eyJ", 30),
];

/// What stands before a secret within a longer text, in small letters.
const BEFORE: [&str; 9] = [
    "password=",
    "passwd=",
    "secret=",
    "x-amz-signature=",
    "x-amz-security-token=",
    // Azure's signed addresses, and its strings of connection.
    "?sig=",
    "&sig=",
    "accountkey=",
    // Anyone with the address may write.
    "hooks.slack.com/services/",
];

/// Whether a value looks like a secret: by a word of its name (`DB_PASSWORD`, `gh-pat`, `apiKey`), or by itself: a password in a URI, a
/// private key, a token as AWS, GitHub, GitLab, Hugging Face, OpenAI, Slack, Google, Stripe, SendGrid, npm, PyPI and Docker make
/// them, a JSON web token, a signed address, and `HF_TOKEN=..` or `--api-key ..` within a longer text.
///
/// The words `key`, `token`, `auth` and `pass` say little: with one of them a number or a short plain word (`jpg`, `<pad>`) is no
/// secret, unless the name is in capitals, as those of variables are. `true` and `false` are never one.
///
/// The words of a name end at every character that is no letter, and where a small letter is followed by a large one.
#[must_use]
pub fn is_secret(name: &str, value: &str) -> bool {
    if is_truth(value) {
        return false;
    }
    // The shell's variable of the working folder.
    let is_named = name != "PWD" && is_named(name, value);
    is_named
        || name.to_ascii_uppercase().contains("CONNECTION_STRING")
        || has_password(value)
        || has_token(value)
        || has_named(value)
}

/// Whether the value of an option is a secret in the words of a command line: `["--api-key", ".."]`.
#[must_use]
pub fn has_option(words: &[&str]) -> bool {
    words.windows(2).any(|pair| is_value_of(pair[0], pair[1]))
}

/// The words of a command with `***` in the places of secrets.
#[must_use]
pub fn hidden(words: &[String]) -> Vec<String> {
    let before = std::iter::once("").chain(words.iter().map(String::as_str));
    let hide = |(before, word): (&str, &String)| match word.split_once('=') {
        _ if is_value_of(before, word) => HIDDEN.to_owned(),
        Some((name, value)) if is_secret(name, value) => format!("{name}={HIDDEN}"),
        _ if is_secret("", word) => HIDDEN.to_owned(),
        _ => word.clone(),
    };
    before.zip(words).map(hide).collect()
}

/// What is shown in the place of a secret.
const HIDDEN: &str = "***";

/// Whether a name says that its value is a secret, and the value may be one.
fn is_named(name: &str, value: &str) -> bool {
    // Variables are hidden and not refused, so that a doubt costs little.
    let is_of_variable = !name.contains(char::is_lowercase);
    let words = words(name);
    let has_weak = words.iter().any(|word| is_weak(word));
    is_sure(&words) || has_weak && !is_number(value) && (is_of_variable || !is_plain(value))
}

/// As [`is_named`], within a longer text: a short value says too little there.
fn is_named_within(name: &str, value: &str) -> bool {
    let may_be = value.contains(char::is_alphanumeric) && !is_truth(value) && !is_number(value);
    may_be && (is_sure(&words(name)) || value.len() >= SHORTEST_WITHIN && is_named(name, value))
}

/// Whether the words of a name say that its value is a secret, whatever it is.
fn is_sure(words: &[String]) -> bool {
    let is_pair = |pair: &[String]| BEFORE_KEY.contains(&pair[0].as_str()) && is_weak(&pair[1]);
    words.iter().any(|word| STRONG.contains(&word.as_str())) || words.windows(2).any(is_pair)
}

fn is_weak(word: &str) -> bool {
    WEAK.contains(&word)
}

fn is_number(text: &str) -> bool {
    text.trim().parse::<f64>().is_ok()
}

fn is_truth(text: &str) -> bool {
    ["true", "false"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word))
}

/// Whether a text is a short word of one case, a list of such words, or a token of a vocabulary: `jpg`, `image-file`, `a,b`, `[PAD]`,
/// `</s>`.
fn is_plain(text: &str) -> bool {
    let is_word = |text: &str| {
        let inner = [('<', '>'), ('[', ']')]
            .iter()
            .find_map(|(open, close)| text.strip_prefix(*open)?.strip_suffix(*close));
        let word = inner.unwrap_or(text);
        // No secret is in such brackets, so that these may have more in them.
        let is_sign =
            |c: char| matches!(c, '-' | '_') || inner.is_some() && matches!(c, '|' | '/' | '0'..='9');
        let letters: Vec<char> = word.chars().filter(|c| !is_sign(*c)).collect();
        (1..=LONGEST_WORD).contains(&letters.len())
            && (letters.iter().all(char::is_ascii_lowercase) || letters.iter().all(char::is_ascii_uppercase))
    };
    // `my-secret` says what it is, and so does the beginning of a token.
    let says_it = is_sure(&words(text)) || TOKENS.iter().any(|(start, _)| text.starts_with(start));
    !says_it && text.split(',').all(|part| is_word(part.trim()))
}

/// Whether a longer text has `NAME=VALUE` or `--NAME VALUE` with a secret.
fn has_named(text: &str) -> bool {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '&' | '?' | ';' | ',');
    let words: Vec<&str> = text.split(is_end).filter(|word| !word.is_empty()).collect();
    let is_assigned = |word: &&str| {
        let mut signs = word.match_indices('=');
        signs.any(|(at, _)| {
            let name = word[..at].rsplit('=').next().unwrap_or_default();
            is_named_within(name, &word[at + 1..])
        })
    };
    words.iter().any(is_assigned) || has_option(&words)
}

/// Whether a word is a secret after an option, such as `--api-key`.
fn is_value_of(option: &str, word: &str) -> bool {
    option.starts_with('-') && !word.starts_with('-') && is_named_within(option, word)
}

/// Whether a text has something that only secrets look like.
fn has_token(text: &str) -> bool {
    let of_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let is_token = |&(start, least): &(&str, usize)| {
        text.match_indices(start).any(|(at, _)| {
            let rest = &text[at + start.len()..];
            !text[..at].ends_with(of_token) && rest.len() - rest.trim_start_matches(of_token).len() >= least
        })
    };
    // The second part of a JSON web token is an object, too.
    let is_web_token = |(at, _): (usize, &str)| text[at..].trim_start_matches(of_token).starts_with(".eyJ");
    let small = text.to_ascii_lowercase();
    let is_after = |before: &&str| {
        small
            .match_indices(*before)
            .any(|(at, _)| small[at + before.len()..].starts_with(|c: char| !c.is_whitespace()))
    };
    TOKENS.iter().any(is_token)
        || text.match_indices("eyJ").any(is_web_token)
        || text.contains("PRIVATE KEY-----")
        || BEFORE.iter().any(is_after)
}

/// The words of a name, in large letters.
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (at, letter) in letters.iter().enumerate() {
        if !letter.is_alphabetic() {
            words.push(String::new());
            continue;
        }
        let before = at.checked_sub(1).map(|before| letters[before]);
        let is_after = |test: fn(char) -> bool| before.is_some_and(test);
        let is_last_large = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        // `apiKey`, and `HFToken`, whose T begins a word.
        if letter.is_uppercase()
            && (is_after(char::is_lowercase) || is_after(char::is_uppercase) && is_last_large)
        {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(letter.to_uppercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether a text has a URI with a user and a password.
fn has_password(text: &str) -> bool {
    let mut rests = text.split("://").skip(1);
    rests.any(|rest| {
        let authority = rest
            .split(|c: char| c == '/' || c.is_whitespace())
            .next()
            .unwrap_or(rest);
        authority
            .split_once('@')
            .is_some_and(|(user, _)| user.contains(':'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_by_their_words() {
        for name in [
            "AWS_SECRET_ACCESS_KEY",
            "HF_TOKEN",
            "SAS",
            "db-password",
            "DB_PASS",
            "DB_PWD",
            "GH_PAT",
            "APIKEY",
            "apiKey",
            "APIKey",
            "WANDB_API_KEY",
            "wandbToken",
            "HFToken",
            "KEY2",
            "x.auth",
            "AZURE_STORAGE_CONNECTION_STRING",
            "db_pw",
            "pw",
        ] {
            assert!(is_secret(name, "x1"), "{name}");
        }
        for name in [
            "PATH",
            "PWD",
            "OLDPWD",
            "MONKEY",
            "keyboard",
            "keypoints",
            "passthrough",
            "pattern",
            "compass",
            "author",
            "TOKENIZERS_PARALLELISM",
            "SASSY",
            "bypassNorm",
            "OMP_NUM_THREADS",
            "pwm_steps",
            "",
        ] {
            assert!(!is_secret(name, "x1"), "{name}");
        }
    }

    #[test]
    fn weak_words_want_a_value_that_may_be_a_secret() {
        for (name, value) in [
            ("image_key", "jpg"),
            ("label-key", "cls"),
            ("keys", "image, label"),
            ("shuffle_key", "a"),
            ("key_metric", "val-accuracy"),
            ("pad_token", "<pad>"),
            ("eos_token", "</s>"),
            ("eos_token", "<|endoftext|>"),
            ("mask_token", "[MASK]"),
            ("extra_token", "<extra_id_0>"),
            ("sort_key", "file_name"),
            ("pass", "train"),
            ("auth", "none"),
            ("token-type", "cls"),
            ("key_dim", "64"),
            ("weight_token", "-1e-3"),
            ("use_auth_token", "false"),
            ("max_tokens", "512"),
            // Variables, and names of the other kind.
            ("MAX_TOKENS", "512"),
            ("USE_AUTH", "True"),
            ("use_password", "false"),
        ] {
            assert!(!is_secret(name, value), "{name} = {value}");
        }
        for (name, value) in [
            ("image_key", "jpg7"),
            ("auth", "Basic"),
            ("hf_token", "hf_x"),
            ("auth_token", "my-own-secret"),
            ("session_key", "seventeenletterss"),
            ("token", "<a b>"),
            ("token", ""),
            ("api_token", "plain"),
            ("api-key", "plain"),
            ("apikey", "plain"),
            ("access_key", "plain"),
            ("private_key", "plain"),
            ("db_password", "plain"),
            ("db_password", "123456"),
            ("db_pw", "plain"),
            ("gh_pat", "plain"),
            ("credential", "plain"),
            // A variable, which is only hidden.
            ("DB_PASS", "plain"),
            ("HF_TOKEN", "x"),
        ] {
            assert!(is_secret(name, value), "{name} = {value}");
        }
    }

    #[test]
    fn secrets_within_command_lines_are_found() {
        for text in [
            "-x HF_TOKEN=a1b2c3d4 -x NCCL_DEBUG=INFO",
            "-x 'API_KEY=a1b2c3d4'",
            "--environment=HF_TOKEN=a1b2c3d4",
            "mysql --password hunter2 -u me",
            "curl https://host/x?user=me&access_token=a1b2c3d4",
            "https://host/x?key=a1b2c3d4",
            "Endpoint=x;SharedAccessKey=a1b2c3d4=",
        ] {
            assert!(is_secret("x", text), "{text}");
        }
        for text in [
            "-x NCCL_DEBUG=INFO -x PATH -mca btl_tcp_if_include eth0",
            "--sort-key=name --max-tokens=512 --pad-token <pad> --pass 2",
            "sort_key=file_name",
            "password: what is it?",
            "the token = 1",
            "https://host/x?y=1",
            "x9PAT3f==",
            "use_auth_token=false",
            "a=b=c",
        ] {
            assert!(!is_secret("x", text), "{text}");
        }
    }

    #[test]
    fn tokens_are_known_by_their_form() {
        for text in [
            "AKIAIOSFODNN7EXAMPLE",
            "--key AKIAIOSFODNN7EXAMPLE,x",
            "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
            "-----BEGIN RSA PRIVATE KEY-----\nMII",
            "https://b.s3.amazonaws.com/k?X-Amz-Signature=0123abcd",
            "host=db Password=x user=me",
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxIn0.x",
            "eyJhbGciOiJub25lIn0.eyJhIjoxfQ.",
            "https://a.blob.core.windows.net/c?sv=2020&sig=abcd",
            "https://a.blob.core.windows.net/c?sig=abcd",
            "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abcd==",
            "ya29.a0AfH6SMBabcdefghijklmnop",
            "xapp-1-A0123-0123-abcdefghijklmnop",
            "https://hooks.slack.com/services/T0/B0/abcd",
            "sk_live_abcdefghijklmnop",
            "SG.abcdefghijklmnopqrstuv.abcdefghijklmnop",
            "npm_abcdefghijklmnopqrstuvwxyz0123456789",
            "pypi-AgEIcHlwaS5vcmcCJDAxMjM0NTY3ODk",
            "dckr_pat_abcdefghijklmnopqrstuvwxyz0",
            "password= password=x",
        ] {
            assert!(is_secret("x", text), "{text}");
        }
        for text in [
            "AKIA",
            "MAKIAIOSFODNN7EXAMPLES",
            "hf_model",
            "sk-learn",
            "skip-the-first-hundred-thousand-of-all-images",
            "s3://bucket/eyJ/x",
            "eyJ.model",
            "npm_run",
            "MSG.abcdefghijklmnopqrstuv",
            "design=abcd",
            "https://hooks.slack.com/docs",
            "ya29.5",
            "password= ",
            "secretless",
            "resnet50",
        ] {
            assert!(!is_secret("x", text), "{text}");
        }
    }

    #[test]
    fn a_password_in_a_uri_is_a_secret() {
        for text in ["postgres://me:s3cret@host/db", "see http://a/b or http://me:pw@c"] {
            assert!(is_secret("x", text), "{text}");
        }
        for text in [
            "http://127.0.0.1:9000/a:b@c",
            "s3://bucket/a@b",
            "http://me@host",
            "a:b@c",
        ] {
            assert!(!is_secret("x", text), "{text}");
        }
    }

    #[test]
    fn secrets_of_a_command_are_hidden() {
        let command = "python train.py --password=geheim --api-key SECRETKEY4 https://u:pw5@host/x --sort-key name --lr 0.1 \
                       HF_TOKEN=abcdefgh";
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        assert_eq!(
            hidden(&words).join(" "),
            "python train.py --password=*** --api-key *** *** --sort-key name --lr 0.1 HF_TOKEN=***"
        );
    }
}
