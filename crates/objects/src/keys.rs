//! Any key on its way through `object_store`, whose paths cannot hold every key, and which fails for a whole list where
//! one cannot be held.
//!
//! ```text
//!  server's page: <Key>a//b&amp;c</Key> ──► <Key>a%2F%2Fb%26c</Key> ──► object_store: a path of one name ──► "a//b&c"
//! ```

use object_store::path::Path;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Elements of the lists of S3, Google and Azure that hold a key. Azure encodes keys that XML cannot hold.
const ELEMENTS: [(&str, bool); 3] = [
    ("<Key>", false),
    ("<Name>", false),
    ("<Name Encoded=\"true\">", true),
];

/// Whether a request with this query asks for a list.
pub(crate) fn is_list(query: &str) -> bool {
    query
        .split('&')
        .any(|part| part == "list-type=2" || part == "comp=list")
}

/// A page of a list, with every key encoded.
pub(crate) fn encoded(page: &str) -> String {
    let mut all = String::with_capacity(2 * page.len());
    let mut rest = page;
    let next = |rest: &str| {
        let each = ELEMENTS.iter().filter_map(|(element, is_encoded)| {
            let start = rest.find(element)? + element.len();
            Some((start, start + rest[start..].find("</")?, *is_encoded))
        });
        each.min()
    };
    while let Some((start, end, is_encoded)) = next(rest) {
        let key = unescaped(&rest[start..end]);
        let key = match is_encoded {
            true => percent_decode_str(&key).decode_utf8_lossy().into_owned(),
            false => key,
        };
        all.push_str(&rest[..start]);
        all.extend(utf8_percent_encode(&key, NON_ALPHANUMERIC));
        rest = &rest[end..];
    }
    all.push_str(rest);
    all
}

/// The key that a page had at this path.
pub(crate) fn decoded(path: &Path) -> String {
    percent_decode_str(path.as_ref()).decode_utf8_lossy().into_owned()
}

/// The text of an element. Servers write characters that XML does not have as references all the same.
fn unescaped(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        all.push_str(before);
        let known = behind.split_once(';').and_then(|(name, behind)| {
            let letter = match (name, name.strip_prefix("#x"), name.strip_prefix('#')) {
                ("amp", ..) => '&',
                ("lt", ..) => '<',
                ("gt", ..) => '>',
                ("quot", ..) => '"',
                ("apos", ..) => '\'',
                (_, Some(digits), _) => char::from_u32(u32::from_str_radix(digits, 16).ok()?)?,
                (_, _, Some(digits)) => char::from_u32(digits.parse().ok()?)?,
                _ => return None,
            };
            Some((letter, behind))
        });
        let (letter, behind) = known.unwrap_or(('&', behind));
        all.push(letter);
        rest = behind;
    }
    all.push_str(rest);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_a_list() {
        let page = "<ListBucketResult><Name>b</Name><Prefix>a/</Prefix><Contents><Key>a//b&amp;&#x9;&#0;</Key><Size>1</Size></Contents>\
                    <Contents><Key> . &lt;é&bad;%2F&gt; </Key></Contents><Contents><Key></Key></Contents></ListBucketResult>";
        let all = encoded(page);
        let keys: Vec<String> = all
            .split("<Key>")
            .skip(1)
            .map(|rest| rest.split_once("</Key>").unwrap().0)
            .map(|key| decoded(&Path::parse(key).unwrap()))
            .collect();
        assert_eq!(keys, ["a//b&\t\0", " . <é&bad;%2F> ", ""]);
        assert!(
            all.starts_with("<ListBucketResult><Name>b</Name><Prefix>a/</Prefix><Contents><Key>a%2F%2Fb"),
            "{all}"
        );
        assert!(all.contains("</Key><Size>1</Size></Contents>"), "{all}");
        let azure =
            encoded("<Blob><Name Encoded=\"true\">a%EF%BF%BE/b</Name></Blob><Blob><Name>c</Name></Blob>");
        let (first, _) = azure.split_once("</Name>").unwrap();
        let (_, first) = first.rsplit_once('>').unwrap();
        assert_eq!(decoded(&Path::parse(first).unwrap()), "a\u{fffe}/b");
    }

    #[test]
    fn lists_are_told_from_objects() {
        assert!(is_list("list-type=2&prefix=a%2F") && is_list("restype=container&comp=list"));
        assert!(!is_list("") && !is_list("partNumber=2&uploadId=x") && !is_list("prefix=list-type=2"));
    }
}
