process STAR_ALIGN {
  output: path 'aligned.txt'
  script:
  """
  echo aligned > aligned.txt
  """
}

process FASTQC {
  input: path aligned
  output: stdout
  script:
  """
  cat $aligned
  """
}

process BROKEN {
  errorStrategy 'ignore'
  script:
  """
  exit 3
  """
}

workflow {
  STAR_ALIGN | FASTQC | view
  BROKEN()
}
