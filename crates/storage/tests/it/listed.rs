//! What a server lists: files, folders and the rest.

use stokehold_storage::{LeftOut, Listed, Object};

fn listed(keys: &[(&str, u64)]) -> Listed {
    let object = |(key, size): &(&str, u64)| Object {
        key: (*key).to_owned(),
        size: *size,
        etag: None,
        modified: 0,
    };
    Listed::of(keys.iter().map(object).collect())
}

fn keys(objects: &[Object]) -> Vec<&str> {
    objects.iter().map(|object| object.key.as_str()).collect()
}

#[test]
fn markers_of_folders_are_no_files() {
    let listed = listed(&[
        ("train/b/0.jpg", 5),
        ("", 0),
        ("train/", 0),
        ("train/a/", 0),
        ("train/a/0.jpg", 5),
        ("train/b", 0),
        ("empty/", 0),
        ("both", 0),
        ("both/", 0),
        ("a b/+%é.jpg", 5),
        ("empty-file", 0),
        ("file", 1),
        ("file/", 0),
    ]);
    assert_eq!(
        keys(&listed.objects),
        [
            "a b/+%é.jpg",
            "empty-file",
            "file",
            "train/a/0.jpg",
            "train/b/0.jpg"
        ]
    );
    assert_eq!(
        keys(&listed.markers),
        [
            "", "both/", "empty/", "file/", "train/", "train/a/", "both", "train/b"
        ]
    );
    assert_eq!(listed.left_out, []);
}

#[test]
fn keys_that_no_file_can_have_are_left_out_with_the_reason() {
    let long = "x".repeat(256);
    let listed = listed(&[
        ("a/0.jpg", 5),
        ("a", 3),
        ("a-b", 1),
        ("b//2.jpg", 5),
        ("/3.jpg", 5),
        ("b/./3.jpg", 5),
        ("b/../4.jpg", 5),
        ("b/tab\tx.jpg", 5),
        ("b/nul\0x.jpg", 5),
        ("b/c/", 9),
        (&long, 1),
        (&long[1..], 1),
    ]);
    assert_eq!(keys(&listed.objects), ["a-b", "a/0.jpg", &long[1..]]);
    assert_eq!(listed.markers, []);
    let told: Vec<String> = listed.left_out.iter().map(LeftOut::to_string).collect();
    assert_eq!(
        told,
        [
            "\"/3.jpg\" is left out: one of its folders has no name".to_owned(),
            "\"b/../4.jpg\" is left out: one of its folders is called . or ..".to_owned(),
            "\"b/./3.jpg\" is left out: one of its folders is called . or ..".to_owned(),
            "\"b//2.jpg\" is left out: one of its folders has no name".to_owned(),
            "\"b/c/\" is left out: it has the name of a folder, and is not empty".to_owned(),
            "\"b/nul\\0x.jpg\" is left out: it has a control character".to_owned(),
            "\"b/tab\\tx.jpg\" is left out: it has a control character".to_owned(),
            format!("\"{long}\" is left out: a name in it has more than 255 bytes"),
            "\"a\" is left out: other objects lie below a folder of its name".to_owned(),
        ]
    );
    let told = LeftOut::told(&vec![listed.left_out[3].clone(); 12], "s3://bucket/data");
    assert_eq!(told.len(), 11);
    assert_eq!(
        told[0],
        "\"s3://bucket/data/b//2.jpg\" is left out: one of its folders has no name"
    );
    assert_eq!(told[10], "s3://bucket/data: 2 more are left out");
}
